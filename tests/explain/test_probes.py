"""The probes hold here, and see what they are there to see."""

from __future__ import annotations

import pytest
import torch

from torus.explain import probes


@pytest.mark.parametrize("name", probes.PROBES)
def test_it_holds(name: str, device: str) -> None:
    found = probes.PROBES[name]()
    assert found.holds, found.figures


def test_a_leak_is_seen(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    kept: list[torch.Tensor] = []
    explain = probes.explain

    def leaking(*args: object, **kwargs: object) -> object:
        kept.append(torch.ones(3, device=device))
        return explain(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(probes, "explain", leaking)
    assert not probes.memory(calls=3).holds


def test_a_wrong_gradient_is_seen(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    wrong = {"wrong": lambda x: x**2 if x.device.type == "cpu" else x**2.01}
    monkeypatch.setattr(probes, "_SMOKE", wrong)
    assert probes.autograd().figures == "wrong"


def test_the_exit_status(capsys: pytest.CaptureFixture[str], device: str) -> None:
    assert probes.main(["scalar_leak"]) == 0
    assert capsys.readouterr().out.startswith("scalar_leak  holds")
