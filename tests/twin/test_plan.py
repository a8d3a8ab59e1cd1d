"""``torus plan`` and `torus.twin.plan`: from a factory to three answers, what is printed, what is written."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import torus  # noqa: F401  makes the device exist where the package is not installed
from torus.cli import main
from torus.twin import planning as plans
from torus.twin.compiler import CompilerMissing, CompileTimeout, DoesNotFit
from torus.twin import Plan, plan

FACTORY = """
import torch

def model(width=64, batch=8):
    torch.manual_seed(0)
    layers = torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, 8)
    return torch.nn.Sequential(*layers), (torch.randn(batch, 64),)
"""
needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="libtpu, which has the TPU compiler, is not installed"
)


@pytest.fixture
def factory(tmp_path: Path) -> str:
    path = tmp_path / "made.py"
    path.write_text(FACTORY)
    return f"{path}:model"


def small(**changes: Any) -> Plan:
    return plan(torch.nn.Linear(64, 8), (torch.zeros(8, 64),), **{"topology": "v6e:1x1", "budget": 0, **changes})


def test_the_analytic_answer_needs_no_compiler(factory: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", factory, "--topology", "v6e:2x2", "--step", "train", "--budget", "0"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(
        f"{factory}, train step of batch 8 on v6e:2x2 (data=4)\n4 chips, 4 devices with 31.2 GiB"
    )
    assert "analytic: fits" in said.out and "all-reduce" in said.out and "composed" not in said.out
    assert "trace and lower" in said.err


def test_what_is_written(factory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, data = tmp_path / "plan.html", tmp_path / "plan.json"
    written = ["--html", str(page), "--json", str(data)]
    options = ["--option", "width=128", "--batch", "16", "--numerics"]
    assert main(["plan", factory, "--topology", "v6e:1x1", "--budget", "0", *options, *written]) == 0
    found = json.loads(data.read_text())
    assert found["batch"] == 16 and found["verdict"]["fits"] and found["answers"][0]["certainty"] == "analytic"
    assert "numerics" in found and "2^-" not in capsys.readouterr().out
    assert page.read_text().startswith("<!doctype html>")


def test_json_on_the_output_is_alone(factory: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", factory, "--topology", "v6e:1x1", "--budget", "0", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["topology"]["name"] == "v6e:1x1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--topology", "v6e:3x5"], "v6e has 1x1, 2x2"),
        (["--topology", "v9:2x2"], "there are v5e, v5p, v6e, tpu7x"),
        (["--topology", "v6e:2x2", "--mesh", "data=3"], "does not fill them"),
        (["--topology", "v6e:1x1", "--option", "depth=3"], "has no option depth"),
        (["--topology", "v6e:1x1", "--option", "depth"], "NAME=VALUE"),
    ],
)
def test_mistakes_are_explained(
    arguments: list[str], words: str, factory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", factory, "--budget", "0", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_step_that_does_not_fit_is_status_1(factory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans.Verdict, "fits", False)
    assert main(["plan", factory, "--topology", "v6e:1x1", "--budget", "0"]) == 1


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the compiler is asked, and what it answers with: an estimate or an error."""
    answers: dict[str, Any] = {}

    def ask(name: str) -> Any:
        def answer(self: Any, *_: Any) -> Any:
            if isinstance(answers[name], Exception):
                raise answers[name]
            return answers[name]

        return answer

    for name in ("composed", "exact"):
        monkeypatch.setattr(plans._Asked, name, ask(name))
    yield answers


def test_without_the_compiler_the_reason_is_said(asked: dict[str, Any]) -> None:
    asked["composed"] = CompilerMissing("pip install 'torus[tpu]'")
    asked["exact"] = CompileTimeout("too long")
    found = small(budget=1)
    assert found.best.certainty == "analytic" and found.fits
    assert "pip install 'torus[tpu]'" in str(found) and "too long" in str(found)


def test_a_refusal_for_memory_is_a_verdict(asked: dict[str, Any]) -> None:
    asked["composed"] = CompileTimeout("too long")
    asked["exact"] = DoesNotFit("RESOURCE_EXHAUSTED", 40 * 2**30, 31 * 2**30)
    found = small(budget=0, exact=True)
    assert [answer.certainty for answer in found.answers] == ["analytic", "exact"]
    assert not found.fits and found.verdict.margin == -9 * 2**30


@needs_libtpu
def test_three_answers() -> None:
    heard: list[str] = []
    found = small(budget=2, step="train", progress=heard.append)
    assert [answer.certainty for answer in found.answers] == ["analytic", "composed", "exact"]
    assert found.best.certainty == "exact" and found.best.compiler_seconds is not None
    assert found.estimates["composed"].flops == pytest.approx(found.best.flops, rel=0.1)
    assert found.fits and any("compile" in words for words in heard)
