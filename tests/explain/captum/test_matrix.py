"""The matrix: its table is complete, its stream of numbers one, a wrong result a miss, and its reports readable."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest
import torch

from torus.explain.matrix.__main__ import main
from torus.explain.matrix.cases import NOT_RUN, Case, all_cases, public
from torus.explain.matrix.compare import distance, judge
from torus.explain.matrix.draws import one_stream
from torus.explain.matrix.measure import Cell, Reference, cells
from torus.explain.matrix.page import page


def test_every_public_name_has_a_case_or_a_reason():
    covered = {name for case in all_cases() for name in case.covers}
    assert set(public()) - covered == set(NOT_RUN)
    assert covered <= set(public())


def test_cases_are_told_apart():
    ids = [case.id for case in all_cases()]
    assert len(ids) == len(set(ids)) > 150


def test_a_word_is_a_token():
    """Exact Shapley values of a prompt that falls into more would take so many factorials longer."""
    pytest.importorskip("transformers")
    from torus.explain.matrix.models import VOCABULARY, tokenizer, words

    assert tokenizer()(words(*range(VOCABULARY)))["input_ids"] == list(range(VOCABULARY))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_are_the_same_everywhere(dtype, device):
    def numbers(where: str) -> list[torch.Tensor]:
        with one_stream(3):
            like = torch.ones(2, 3, device=where, dtype=dtype)
            drawn = [
                torch.randn(4, device=where, dtype=dtype),
                torch.rand_like(like),
                torch.normal(0.0, like),
                torch.bernoulli(like / 2),
                torch.multinomial(like, 2),
                torch.randperm(5),
                like.clone().uniform_(-1, 1),
                like.clone().normal_(),
                torch.distributions.Normal(like, like).sample(),
            ]
        assert all(x.device.type == where for x in (*drawn[:5], *drawn[6:]))
        return [x.cpu().float() for x in drawn]

    assert all(map(torch.equal, numbers(device), numbers("cpu")))


def test_the_stream_ends_with_the_block():
    functions = torch.randn, torch.Tensor.uniform_
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    with one_stream(1):
        torch.rand(3)
    assert torch.equal(torch.rand(3), expected) and (torch.randn, torch.Tensor.uniform_) == functions


def test_results_are_judged_by_float64_where_the_cpu_rounds_as_much():
    exact, cpu, ours, wrong = ([torch.tensor([1.0, x], dtype=torch.float64)] for x in (0.5, 0.501, 0.499, 0.504))
    assert judge([cpu], cpu, lambda: exact, 1e-6).right
    assert judge([ours], cpu, lambda: exact, 1e-6).right
    assert not judge([ours, wrong], cpu, lambda: exact, 1e-6).right
    assert not judge([wrong], cpu, lambda: exact, 1e-6, lambda: [cpu]).right
    assert judge([wrong], cpu, lambda: exact, 1e-6, lambda: [cpu, [torch.tensor([1.0, 0.498])]]).right
    assert distance([torch.tensor([1.0])], [torch.tensor([torch.nan])]) == torch.inf
    assert distance([torch.ones(2)], [torch.ones(3)]) == torch.inf


def test_a_wrong_result_is_a_miss(device):
    wrong = Case("wrong", "mlp", lambda s: s.x * (1.0 if s.device.type == "cpu" else 1.00001), ("Saliency",))
    (cell,) = cells(wrong, ("strict",))
    assert cell.status == "miss" and cell.error == pytest.approx(1e-5, rel=0.1)


def test_nudged_results_are_a_rounding_away():
    reference = Reference(Case("logits", "mlp", lambda s: s.net(s.x), ("Saliency",)))
    apart = [distance(results, reference.exact()) for results in reference.nudged()]
    assert len(set(apart)) == 4 and all(1e-9 < x < 3e-7 for x in apart)


def test_a_case_that_fails_on_the_cpu_is_not_run():
    cell, _ = cells(Case("fails", "mlp", lambda s: s.x @ s.x, ("Saliency",)), ("strict", "fused"))
    assert cell.status == "skip" and "does not run on the CPU" in cell.note


def test_the_command(tmp_path, capsys, device):
    out, report = tmp_path / "m.json", tmp_path / "m.html"
    only = ["--only", "mlp:Saliency$", "--modes", "strict,fused", "--quiet"]
    assert main([*only, "--json", str(out), "--html", str(report)]) == 0
    found = json.loads(out.read_text())["cells"]
    assert [cell["mode"] for cell in found] == ["strict", "fused"]
    assert all(cell["status"] == "ok" and cell["programs"] > 0 and cell["peak_memory"] > 0 for cell in found)
    assert found[1]["programs"] < found[0]["programs"]
    assert "strict: 1 of 1 as right as the CPU" in capsys.readouterr().out
    assert main(["--only", "no such case", "--quiet"]) == 2


def test_compiled_cells_are_compiled(device):
    (saliency,) = (case for case in all_cases() if case.id == "mlp:Saliency")
    strict, compiled = cells(saliency, ("strict", "compiled"))
    assert compiled.status == "ok" and compiled.graphs == 1 and compiled.programs < strict.programs
    (eager,) = cells(Case("eager", "mlp", lambda s: s.x + 1, ("Saliency",)), ("compiled",))
    assert eager.status == "miss" and eager.note == "nothing was compiled"


def test_the_exit_status_of_a_miss(monkeypatch, device):
    wrong = Case("wrong", "mlp", lambda s: s.x + (s.device.type != "cpu"), ("Saliency",))
    monkeypatch.setattr("torus.explain.matrix.cases.all_cases", lambda: [wrong])
    assert main(["--modes", "strict", "--quiet"]) == 1


class Page(HTMLParser):
    """Fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        assert not any(name in ("src", "href") for name, _ in attributes)
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_escaped():
    shown = [
        Cell("a<b", "mlp", "strict", "miss", 1e-6, error=0.5, cpu_seconds=1.0, seconds=2.0, programs=3, peak_memory=4),
        Cell("a<b", "mlp", "fused", "miss", 1e-6, note="<Error>"),
        Cell("c", "mlp", "strict", "skip", 1e-6, note="needs x"),
    ]
    text = page(shown, {"torch": "2"})
    Page(text)
    assert "a&lt;b" in text and "&lt;Error&gt;" in text and "<Error>" not in text and 'class="miss"' in text


def test_the_page_begins_with_its_misses():
    right, wrong = (
        Cell(f"a {kind} case", "mlp", "fused", kind, 1e-6, error=3e-4, programs=1) for kind in ("ok", "miss")
    )
    text = page([right, wrong], {})
    Page(text)
    before, _, _ = text.partition("<table>")
    assert "1 miss<" in before and "mlp: a miss case" in before and "3.0e-04, the limit 1.0e-06" in before
    assert "a ok case" not in before and "a miss," in before
    assert "<h2>" not in page([right], {})
