"""Reports of plans made by hand: text, JSON and one HTML page."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.twin.plans import GIB, full, plan
from torus.twin.planning import Answer, Verdict
from torus.twin.report import words
from torus.twin.report.figures import efficiency, memory
from torus.twin.report.page import page


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (words.binary(0), "0 B"),
        (words.binary(1023), "1023 B"),
        (words.binary(10.6 * GIB), "10.6 GiB"),
        (words.binary(1023.9 * 2**20), "1.00 GiB"),
        (words.decimal(3.456e15, "FLOP"), "3.46 PFLOP"),
        (words.decimal(999_999, "B/s"), "1.00 MB/s"),
        (words.seconds(0.01234), "12.3 ms"),
        (words.seconds(125), "125 s"),
        (words.seconds(0), "0 us"),
        (words.change(10, 6), "-40 %"),
        (words.change(10, 30), "3.0x"),
    ],
)
def test_words(said: str, expected: str) -> None:
    assert said == expected


def test_the_verdict_is_that_of_the_surest_answer() -> None:
    assert plan(40, 30).fits
    assert not plan(20, 30, 32).fits
    assert str(plan(10).verdict) == "fits: 10.0 GiB of 31.2 GiB of HBM, 21.2 GiB left"
    assert "8.76 GiB too much" in str(plan(40).verdict)


def test_a_program_that_the_compiler_refuses_does_not_fit() -> None:
    found = plan(20)
    refused = Answer("exact", 3.0, None, Verdict(40 * GIB, 31 * GIB, "exact"), "the compiler refuses it")
    object.__setattr__(found, "answers", (*found.answers, refused))
    assert not found.fits and found.best.certainty == "analytic"
    assert "refuses" in str(found) and "refuses" in page(found)


def test_text_has_every_part() -> None:
    said = str(full(40, 30))
    for part in ("analytic:", "composed:", "does not fit", "all-reduce", "dot_general", "heads of 128", "bfloat16"):
        assert part in said
    assert "40.0 GiB -> 20.0 GiB (-50 %)" in said
    assert "Weak scaling, data" in said and "it ends there" in said
    assert max(map(len, said.splitlines())) < 160


def test_json_is_complete() -> None:
    found = json.loads(full(40, 30).json())
    assert found["verdict"]["fits"] is True and found["verdict"]["certainty"] == "composed"
    assert [a["certainty"] for a in found["answers"]] == ["analytic", "composed"]
    assert found["answers"][0]["estimate"]["memory"]["peak"] == 40 * GIB
    assert found["topology"]["chip"]["flops"]["bfloat16"] == 918e12
    assert found["advice"][0]["after"]["memory"]["peak"] == 20 * GIB
    assert [p["chips"] for p in found["scaling"][0]["points"]] == [1, 4, 16]


class _Parser(HTMLParser):
    VOID = ("meta",)

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_alone(tmp_path: Path) -> None:
    full(40, 30, 31).html(tmp_path / "plan.html")
    text = (tmp_path / "plan.html").read_text(encoding="utf-8")
    parser = _Parser()
    parser.feed(text)
    assert not parser.open and not parser.links
    assert parser.seen.count("svg") == 3 and "script" not in parser.seen
    assert "Tiny &lt;b&gt;" in text and "<b>Tiny" not in text and "128x&lt;script&gt;" in text


def test_a_notebook_shows_the_same() -> None:
    assert full(10)._repr_html_() in page(full(10))


def test_the_bars_of_memory_end_at_the_peak() -> None:
    drawing = memory(plan(10, 40))
    boxes = [s for s in drawing.shapes if type(s).__name__ == "Box" and s.height == 22]
    assert len(boxes) == 6
    lengths = [sum(b.width for b in boxes[row : row + 3]) for row in (0, 3)]
    assert lengths[1] / lengths[0] == pytest.approx(4)
    assert all(b.x + b.width <= drawing.width for b in boxes)


@pytest.mark.parametrize("kind", ["weak", "strong"])
def test_efficiency_stays_in_the_picture(kind: str) -> None:
    drawing = efficiency(full(10).scaling, kind)  # type: ignore[arg-type]
    points = [p for s in drawing.shapes if type(s).__name__ == "Lines" for p in s.points]
    assert all(0 <= x <= drawing.width and 0 <= y <= drawing.height for x, y in points)
