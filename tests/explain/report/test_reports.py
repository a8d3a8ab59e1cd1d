"""Reports: one file that needs nothing else, well formed, with everything escaped."""

from __future__ import annotations

import base64
import dataclasses
import re
import struct
import sys
import zlib
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

from torus.explain import Explanation, explain
from torus.explain.report import colours, pictures
from torus.explain.report.certificate import verdict
from torus.explain.report.drawing import Box, Label, text_width
from torus.explain.report.figure import figure, text
from torus.explain.report.plots import convergence
from torus.explain.text.matrix import TokenMatrix
from torus.explain.text.result import TextExplanation
from torus.explain.text.spans import words
from torus.explain.text.tokens import Block, Tokens

EVIL = "<script>alert('x')</script> & \"quotes\" \x00 شكرا جزيلا"


def table() -> Explanation:
    torch.manual_seed(0)
    return explain(nn.Linear(3, 2).eval(), torch.tensor([[1.0, 2.0, 3.0]]), 1, method="input_x_gradient")


def image() -> Explanation:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 10, 2))
    return explain(net, torch.rand(2, 3, 8, 10), 1, method="input_x_gradient")


def text_of(content: str = EVIL, scores: tuple[float, ...] | None = None) -> TextExplanation:
    found = table()
    segments = tuple(words(content))
    return TextExplanation(
        **{field.name: getattr(found, field.name) for field in dataclasses.fields(found)},
        tokens=Tokens(content, (), (), (), (Block("user <b>", 0, len(content)),)),
        segments=segments,
        scores=scores or tuple((-1.0) ** index * index for index in range(len(segments))),
        score_errors=None,
        question=f"logit of {content}",
        replacement="<pad>",
    )


def matrix() -> TokenMatrix:
    tokens = Tokens(EVIL + " ab", (1, 2), ((0, 3), (4, 9)), (True, True), (Block("", 0, len(EVIL)),), generated=2)
    spans = tuple(words(EVIL))
    scores = torch.arange(2.0 * len(spans)).reshape(2, -1)
    return TokenMatrix(tokens, spans, scores, (1.0, 2.0), (table().certificate,), "log-probability")


class Checked(HTMLParser):
    """Every element is closed in order, nothing comes from elsewhere, and nothing runs."""

    EMPTY = ("meta", "img", "br", "rect", "polyline", "image")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "iframe", "object", "embed")
        for name, value in attrs:
            assert not name.startswith("on")
            assert name not in ("src", "href") or str(value).startswith("data:image/png;base64,")
        self.seen.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words += data


RESULTS: list[Callable[[], Any]] = [table, image, text_of, matrix]


@pytest.mark.parametrize("result", RESULTS)
def test_a_page_is_well_formed_and_needs_nothing(result: Callable[[], Any]) -> None:
    page = result().to_html(title=EVIL)
    checked = Checked(page)
    assert page.startswith("<!doctype html>")
    assert EVIL.replace("\x00", "\ufffd") in checked.words
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", page)


@pytest.mark.parametrize("result", RESULTS)
def test_a_notebook_shows_the_same_and_its_own_style_stays(result: Callable[[], Any]) -> None:
    shown = result()._repr_html_()
    Checked(shown)
    style = shown.partition("<style>")[2].partition("</style>")[0]
    rules = re.findall(r"([^{}]+)\{[^{}]*\}", re.sub(r"@media[^{]*\{", "", style))
    assert all(".torus-explain" in part for rule in rules for part in rule.split(",") if part.strip())


@pytest.mark.parametrize("result", RESULTS)
def test_svg_is_well_formed(result: Callable[[], Any], tmp_path: Path) -> None:
    path = result().save(tmp_path / "picture.svg", title=EVIL)
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert all(not key.endswith("href") or value.startswith("data:") for e in root.iter() for key, value in e.items())


@pytest.mark.parametrize("result", [table, image, text_of])
def test_png(result: Callable[[], Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    data = result().save(tmp_path / "picture.PNG", title="costs $5 or $6").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">I", data[16:20]) == (1520,)


def test_without_matplotlib_a_png_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(ImportError, match=r"pip install matplotlib, or save as \.svg"):
        table().save(tmp_path / "picture.png")


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\.html, \.svg nor \.png"):
        table().save(tmp_path / "picture.pdf")


@pytest.mark.parametrize("theme", ["light", "dark", "auto"])
def test_themes(theme: str) -> None:
    assert f'<main class="torus-explain {theme}">' in table().to_html(theme=theme)


def test_there_are_no_other_themes() -> None:
    with pytest.raises(ValueError, match="auto, light, dark"):
        table().to_html(theme="pink")


def test_text_is_whole_and_in_order_and_finds_its_direction() -> None:
    content = "مرحبا بالعالم! Hello\n\nshalom שלום  " + "long " * 500
    checked = Checked(text_of(content).to_html())
    assert content in checked.words
    (paragraph,) = [attrs for tag, attrs in checked.seen if tag == "p" and attrs.get("class") == "text"]
    assert paragraph["dir"] == "auto"
    assert sum(tag == "mark" for tag, _ in checked.seen) == len(words(content))


def test_a_heat_map_of_a_text_without_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case A13."""
    monkeypatch.setitem(sys.modules, "IPython", None)
    assert "<mark" in text_of("a text").to_html()


def test_what_is_in_no_segment_is_said() -> None:
    found = text_of("one two", (0.25, 0.5))
    rest = float(found.attribution.sum()) - 0.75
    assert f"{rest:+.3g} of that sum is with tokens that are in no segment" in found.to_html()
    whole = dataclasses.replace(found, scores=(0.25, float(found.attribution.sum()) - 0.25))
    assert "in no segment" not in whole.to_html()


def test_the_strongest_segment_has_the_deepest_colour() -> None:
    page = text_of("one two three", (0.5, -2.0, float("nan"))).to_html()
    assert re.findall(r'<mark style="background:rgb\(var\(--(\w+)\)/([\d.]+)\)" title="([^"]+)">(\w+)', page) == [
        ("positive", "0.188", "+0.5", "one"),
        ("negative", "0.750", "-2", "two"),
        ("negative", "0.000", "nan", "three"),
    ]


def test_names_of_features_are_shown_the_largest_first() -> None:
    found = table()
    order = found.attribution[0].abs().argsort(descending=True).tolist()
    page = found.to_html(names=["a", "b", "c"])
    assert re.findall(r'<th scope="row">(\w)</th>', page) == ["abc"[index] for index in order]
    with pytest.raises(ValueError, match="2 names for 3 features"):
        found.to_html(names=["a", "b"])


def test_png_files_have_the_pixels() -> None:
    pixels = torch.arange(2 * 3 * 4, dtype=torch.uint8).reshape(2, 3, 4)
    data = base64.b64decode(pictures.data_uri(pixels).partition(",")[2])
    start = data.index(b"IDAT") + 4
    (length,) = struct.unpack(">I", data[start - 8 : start - 4])
    rows = zlib.decompress(data[start : start + length])
    assert rows == b"".join(b"\0" + bytes(row.flatten().tolist()) for row in pixels)


def test_an_image_uses_its_whole_range_and_a_map_both_colours() -> None:
    shown = pictures.shown(torch.tensor([[[-1.0, 3.0]]]))
    assert shown.tolist() == [[[0, 0, 0], [255, 255, 255]]]
    over = pictures.overlay(torch.tensor([[-2.0, 0.0, 2.0, float("nan")]]))
    assert [tuple(pixel[:3]) for pixel in over[0, (0, 2)].tolist()] == [colours.NEGATIVE, colours.POSITIVE]
    assert over[0, :, 3].tolist() == [217, 0, 217, 0]


def test_the_way_to_convergence_goes_down_and_ends_below_the_tolerance() -> None:
    found = dataclasses.replace(table(), history=((16, 0.5), (32, 1e-2), (64, 1e-5), (128, 0.0)))
    assert "<polyline" in found.to_html()
    assert "<polyline" not in table().to_html()
    *_, line = [shape for shape in convergence(found.history, 1e-3).shapes if hasattr(shape, "points")]
    heights = [y for _, y in line.points]
    assert heights == sorted(heights)
    assert "nan" not in convergence([(1, float("nan")), (2, 0.1), (3, 0.1)], 0.1).svg()


def test_the_certificate_says_whether_it_passed() -> None:
    certificate = table().certificate
    gap = dataclasses.replace(certificate, completeness_gap=2e-4)
    assert verdict(gap) == "Passed: the attributions sum to what they explain, up to 0.0002 of it (tolerance 0.001)"
    assert verdict(dataclasses.replace(gap, completeness_gap=0.5)).startswith("Failed: the attributions miss")
    assert verdict(dataclasses.replace(gap, verdict="too few samples")) == "Not converged: too few samples"
    assert "No promise" in verdict(certificate)
    page = dataclasses.replace(table(), certificate=dataclasses.replace(gap, without_rule=("aten::<x>",))).to_html()
    assert '<p class="verdict good">' in page
    assert "aten::&lt;x&gt;" in page


def test_pictures_set_right_to_left_lines_from_the_right() -> None:
    content = "שלום עולם\nab cd"
    labels = [
        s
        for s in text(content, [Block("", 0, len(content))], words(content), [1.0, 2, 3, 4]).shapes
        if isinstance(s, Label)
    ]
    assert [label.text for label in labels] == ["שלום", "עולם", "ab", "cd"]
    assert labels[0].x > labels[1].x and labels[2].x < labels[3].x
    assert labels[0].x + (labels[0].width or 0) == pytest.approx(736)


def test_pictures_wrap_and_cut_at_the_margin() -> None:
    drawing = figure(text_of("word " * 100 + "x" * 500 + " 日本" * 40))
    boxes = [shape for shape in drawing.shapes if isinstance(shape, Box)]
    assert max(box.x + box.width for box in boxes) <= 736.01
    assert max(box.y for box in boxes) < drawing.height


def test_widths() -> None:
    assert text_width("e\u0301", 10) == text_width("e", 10)
    assert text_width("日", 10) == 2 * text_width("a", 10)
