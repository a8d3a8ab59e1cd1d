"""The benchmarks run and report every field; what they measure is not judged here."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import PARTS, main, parse
from benchmarks.report import Figure, show, spread
from benchmarks.worker import Failed, Worker

SIDE_BY_SIDE = ("ops", "views")


def measured(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """What a run in its smallest form writes."""
    path = tmp_path / "found.json"
    assert main(["--quick", "--rounds", "2", "--json", str(path), *arguments]) == 0
    return json.loads(path.read_text())


def check(found: dict[str, Any], *groups: str) -> None:
    """All groups are there, and every number is one."""
    assert found["errors"] == {} and list(found["results"]) == list(groups)
    assert found["machine"]["cores"] >= found["machine"]["usable_cores"] >= 1
    assert len(found["machine"]["load_before"]) == len(found["machine"]["load_after"]) == 3
    assert {"python", "torch", "jax"} <= found["versions"].keys()
    for group in groups:
        figures = found["results"][group]["figures"]
        assert figures
        for figure in figures:
            assert figure["group"] == group
            assert figure["ratio"] == figure["name"].startswith("ratio ") == (figure["unit"] == "x")
            assert figure["note"] if figure["value"] is None else math.isfinite(figure["value"])
            assert figure["verdict"] in ("met", "missed", "not measured", "")
            assert bool(figure["target"]) == (figure["limit"] is not None)


def test_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Processes in turns; a peer that cannot run is listed with the reason."""
    nothing = shutil.which("false")
    page = tmp_path / "page.html"
    found = measured(tmp_path, "--only", ",".join(SIDE_BY_SIDE), "--peer", f"torch_xla={nothing}", "--plot", str(page))
    check(found, *SIDE_BY_SIDE)
    assert found["peers"]["torch_xla"].startswith("cannot be used: torch_xla died")
    assert found["places"]["cpu"]["threads"] == 1 and found["places"].keys() >= {"tpu", "cpu"}
    for group in SIDE_BY_SIDE:
        table = found["results"][group]["side_by_side"]
        assert all(len(row) == len(table["columns"]) for row in table["rows"])
    for name in ("x + y", "x + 1", "x + changing scalar", "64x64 matmul"):
        assert all(sample[name] > 0 for sample in found["results"]["ops"]["samples"]["tpu"])
    assert "load average" in capsys.readouterr().out
    assert page.read_text().count("<rect") == sum(
        figure["verdict"] in ("met", "missed")
        for group in SIDE_BY_SIDE
        for figure in found["results"][group]["figures"]
    )


GROUPS = ("step", "startup", "scalars", "accuracy", "fuse-record", "fuse-chain", "explain-gradients")


@pytest.mark.slow
def test_every_figure_is_there(tmp_path: Path) -> None:
    """One run, whose processes serve all groups: each start of one takes seconds."""
    found = measured(tmp_path, "--only", ",".join(GROUPS))
    check(found, *GROUPS)
    samples = {group: found["results"][group]["samples"] for group in GROUPS}
    check_steps(samples["step"]["MLP, SGD"])
    check_scalars(samples["scalars"])
    check_startup(samples["startup"])
    check_recording(samples["fuse-record"])
    check_chain(samples["fuse-chain"]["mixed ops, 32x32"])
    check_explanations(samples["explain-gradients"])
    verdicts = {figure["name"]: figure["verdict"] for figure in found["results"]["fuse-chain"]["figures"]}
    assert verdicts["largest difference of a result from CPU eager's, relative"] == "met"


def check_steps(samples: dict[str, Any]) -> None:
    assert samples.keys() == {"tpu", "cpu", "cpu_threads"}
    assert all(
        len(taken) == 2 and all(one["wall"] > 0 and one["cpu"] > 0 for one in taken) for taken in samples.values()
    )


def check_scalars(samples: dict[str, Any]) -> None:
    assert {"scalars", "offsets x[i]"} == samples.keys()
    assert all(sample["right"] and sample["operations"] > 0 for sample in samples.values())


def check_startup(samples: dict[str, Any]) -> None:
    assert samples["first"]["counters"]["compiles"] > 0
    assert all(run["counters"]["cache_hits"] > 0 for run in samples["second"])
    for run in (samples["first"], *samples["second"], *samples["cpu"]):
        assert run["import torch"] > 0
        assert all(run["MLP step"][phase] > 0 for phase in ("setup", "first", "warm"))


def check_recording(samples: dict[str, Any]) -> None:
    """Nothing runs while the clock does."""
    assert samples.keys() == {"tpu_fused", "tpu", "cpu"}
    for taken in samples.values():
        assert all(one["flushes"] == 0 and one["x + y"] > 0 and one["x + 1"] > 0 for one in taken)


def check_chain(samples: dict[str, Any]) -> None:
    assert samples.keys() == {"tpu_fused", "tpu", "cpu", "cpu_threads", "jax"}
    assert all(one["wall"] > 0 for taken in samples.values() for one in taken)
    assert all(one["programs"] >= 1 for one in samples["tpu_fused"])


def check_explanations(samples: dict[str, Any]) -> None:
    """Ours ends under the gap of fixed steps, and under the tolerance that they miss."""
    for one in samples.values():
        assert 0 < one["to_gap"] <= one["to_gap_and_error"]
        assert one["error"] < 2e-3


@pytest.mark.slow
def test_composed_answers_agree_with_the_whole_program(tmp_path: Path) -> None:
    pytest.importorskip("libtpu", reason="libtpu, which has the TPU compiler, is not installed")
    found = measured(tmp_path, "--only", "twin-agreement")
    check(found, "twin-agreement")
    (answers,) = found["results"]["twin-agreement"]["samples"].values()
    assert abs(answers["composed"]["HBM peak"] - 1) < 0.05
    assert abs(answers["composed"]["FLOPs"] - 1) < 0.02


def test_a_part_is_all_its_pieces() -> None:
    assert parse(["--only", "ops,fuse"]).only == ["ops", *PARTS["fuse"]]
    assert {"fuse-record", "fuse-chain", "fuse-step", "fuse-captum"} < set(PARTS["fuse"])


def test_a_worker_reports_its_error() -> None:
    with Worker(None) as worker:
        assert {"python", "torch"} <= worker.description["versions"].keys()
        with pytest.raises(Failed, match="no attribute 'missing'"):
            worker.call("benchmarks.ops:missing")


@pytest.mark.parametrize(
    "arguments", [["--only", "speed"], ["--rounds", "0"], ["--peer", "torchax"], ["--peer", "a=b"]]
)
def test_bad_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert "error: argument" in capsys.readouterr().err


def test_verdicts() -> None:
    assert Figure("g", "n", 4.0, "x", 4.0).verdict == "met"
    assert Figure("g", "n", 4.1, "x", 4.0).verdict == "missed"
    assert Figure("g", "n", 4.1, "x", 5.0, at_least=True).verdict == "missed"
    assert Figure("g", "n", None, "x", 5.0).verdict == "not measured"
    assert Figure("g", "n", 4.0).verdict == "" == Figure("g", "n", 4.0).target
    assert Figure("g", "n", 1e-7, "", 1e-5).target == "<= 1e-05"
    assert (show(2.0, "x"), show(2.0, "us"), show(None, "s")) == ("2.00x", "2.00 us", "-")
    assert spread([3.0, 1.0, 2.0], "us") == "2.00 us (1.00 us)"
