"""Fewer bfloat16 passes cost attributions what they cost on a matrix unit."""

from __future__ import annotations

import pytest

from torus.explain.precision_study import study, table

pytest.importorskip("captum")

PUBLISHED = {"Saliency": 2.2e-3, "InputXGradient": 1.7e-3}
"""Relative errors of the same methods in one pass on a TPU, from a public work log."""


def test_errors_are_of_the_size_that_was_published_for_a_tpu(device: str) -> None:
    errors = study(list(PUBLISHED))
    for name, published in PUBLISHED.items():
        assert published / 3 < errors[name]["default"] < published * 3
        assert errors[name]["high"] < errors[name]["default"] / 20
        assert errors[name]["highest"] < 5e-7
    assert table(errors).splitlines()[0].split() == ["method", "default", "high", "highest"]
