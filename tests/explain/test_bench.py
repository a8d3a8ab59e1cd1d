"""The figures of `torus explain bench`: what is measured, and that a wrong result would show."""

from __future__ import annotations

import argparse
import json

import pytest
import torch

from torus.explain import bench, profiled


def test_it_measures_in_processes_of_their_own(tmp_path, capsys):
    factory = tmp_path / "mine.py"
    factory.write_text(
        "import torch\n\ndef made():\n    torch.manual_seed(0)\n"
        "    return torch.nn.Linear(3, 1).eval(), torch.ones(2, 3), None\n"
    )
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    out = tmp_path / "out.json"
    given = [f"{factory}:made", "--method", "saliency", "--places", "strict", "--repeat", "2", "--json", str(out)]
    assert bench.run(parser.parse_args(given)) == 0
    cpu, strict = json.loads(out.read_text())["places"]
    assert (cpu["place"], strict["place"]) == ("cpu", "strict") and cpu["programs"] is None
    assert strict["error"] < 1e-6 and strict["programs"] > 0 and strict["peak_memory"] > 0
    assert strict["first_empty"] > strict["first_filled"] > strict["warm"] > 0
    printed = capsys.readouterr().out
    assert "first empty" in printed
    for place in (cpu, strict):
        seconds = [row["seconds"] for row in place["top"]]
        assert seconds == sorted(seconds, reverse=True) and seconds[-1] > 0
        assert any(row["what"].startswith("aten::") and row["calls"] for row in place["top"])
        assert f"{place['place']}, where a warm call spends its time" in printed


def test_a_profile_of_recorded_ops_has_the_lines_that_ran_them(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.tpu, "fusing", "foreground")
    x = torch.ones(3, device=device)

    def call() -> None:
        with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE):
            for _ in range(2):
                (x + 1).tolist()

    for _ in range(3):
        rows = profiled.top(call, recorded=True)
    assert [row.calls for row in rows if "(host" in row.what and "test_a_profile" in row.what] == [2], rows
    assert any(row.what.startswith("recording") for row in rows)


def test_a_layer_of_one_of_captums_methods() -> None:
    pytest.importorskip("captum")
    asked = {"place": "cpu", "model": "mlp", "method": "captum:LayerGradientXActivation", "options": {}}
    found = bench._call(asked | {"layer": "first"}, torch.device("cpu"))()
    model, inputs, _ = bench.load("mlp")
    assert found.shape == model.first(inputs).shape


def test_errors_are_those_against_the_cpu():
    figures = dict.fromkeys(("first_empty", "first_filled", "warm", "processor"), 1.0)
    figures |= dict.fromkeys(("programs", "host_reads", "host_writes", "peak_memory"))
    figures["top"] = []
    found = [(figures | {"place": place}, [torch.tensor([1.0, x])]) for place, x in (("cpu", 2.0), ("strict", 2.5))]
    assert [row.error for row in bench._with_errors(found)] == [0.0, pytest.approx(0.25)]


def test_names_that_do_not_exist():
    with pytest.raises(ValueError, match="mlp"):
        bench.load("nothing")
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    assert bench.run(parser.parse_args(["--places", "moon"])) == 2
