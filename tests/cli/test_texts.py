from __future__ import annotations

import argparse

import pytest

from torus.cli import texts


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2.5e9, "2.5 GB"), (3e13, "30.0 TB")]
)
def test_size(count: float, text: str) -> None:
    assert texts.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "?"), (-1, "0s"), (59, "59s"), (90, "2m"), (7200, "2h"), (2e5, "2d")]
)
def test_age(seconds: float | None, text: str) -> None:
    assert texts.age(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1.5m", 90), ("2H", 7200), ("30d", 2592000), ("1w", 604800)]
)
def test_duration(text: str, seconds: float) -> None:
    assert texts.duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "d", "5 years", "-1d"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="it accepts 90s"):
        texts.duration(text)


def test_table() -> None:
    assert texts.table([["A", "B", "C"], ["1", "22", "long text"]], right=(1,)) == "A   B  C\n1  22  long text"


def test_plural() -> None:
    assert [texts.plural(n, "miss", "misses") for n in (0, 1, 2)] == ["0 misses", "1 miss", "2 misses"]
