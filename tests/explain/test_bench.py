"""The figures of `torus explain bench`: what is measured, and that a wrong result would show."""

from __future__ import annotations

import argparse
import json

import pytest
import torch

from torus.explain import bench


def test_it_measures_in_processes_of_their_own(tmp_path, capsys):
    factory = tmp_path / "mine.py"
    factory.write_text(
        "import torch\n\ndef made():\n    torch.manual_seed(0)\n"
        "    return torch.nn.Linear(3, 2).eval(), torch.ones(2, 3), [0, 1]\n"
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
    assert "first empty" in capsys.readouterr().out


def test_errors_are_those_against_the_cpu():
    figures = dict.fromkeys(("first_empty", "first_filled", "warm"), 1.0)
    figures |= dict.fromkeys(("programs", "host_reads", "host_writes", "peak_memory"))
    found = [(figures | {"place": place}, [torch.tensor([1.0, x])]) for place, x in (("cpu", 2.0), ("strict", 2.5))]
    assert [row.error for row in bench._with_errors(found)] == [0.0, pytest.approx(0.25)]


def test_names_that_do_not_exist():
    with pytest.raises(ValueError, match="mlp"):
        bench.load("nothing")
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    assert bench.run(parser.parse_args(["--places", "moon"])) == 2
