"""An explanation as one picture."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import singledispatch
from typing import Any

from torus.explain.report import colours, pictures, plots
from torus.explain.report.certificate import verdict
from torus.explain.report.drawing import INK, LINE, SOFT, Box, Drawing, Label, Picture, text_width
from torus.explain.report.markup import number
from torus.explain.report.panels import features, heading, image_scores, is_image
from torus.explain.result import Explanation
from torus.explain.text.matrix import TokenMatrix
from torus.explain.text.result import TextExplanation
from torus.explain.text.spans import Span
from torus.explain.text.tokens import Block

WIDTH, MARGIN, SIZE, LEADING = 760.0, 24.0, 15.0, 26.0
MOST_BARS = 20


def figure(result: Any, *, title: str | None = None, names: Sequence[str] | None = None) -> Drawing:
    """The heading, what is explained, the way to convergence and the verdict."""
    page = Drawing(WIDTH, MARGIN / 2)
    page.place(_line(title or heading(result), 19, INK), gap=0)
    page.place(body(result, names))
    history, certificates = getattr(result, "history", ()), getattr(result, "certificates", ())
    certificate = certificates[0] if certificates else result.certificate
    if plots.plottable(history):
        page.place(plots.convergence(history, certificate.tolerance))
    page.place(_line(verdict(certificate), 13, SOFT))
    page.height += MARGIN
    return page


@singledispatch
def body(result: Any, names: Sequence[str] | None) -> Drawing:
    """What is explained, with its scores."""
    raise TypeError(f"there is no picture of a {type(result).__name__}")


@body.register
def _(result: Explanation, names: Sequence[str] | None) -> Drawing:
    """The first example; a file is for one."""
    drawing = Drawing(WIDTH)
    for points, scores in zip(result.points, result.attributions):
        point, score = points[0], scores[0]
        if is_image(point) and point.shape == score.shape:
            drawing.place(_images(point, score))
        else:
            found, numbers, _ = features(point, score, names if len(result.points) == 1 else None)
            drawing.place(_bars(found, numbers))
    return drawing


@body.register
def _(result: TextExplanation, names: Sequence[str] | None) -> Drawing:
    return text(result.tokens.text, result.tokens.blocks, result.segments, result.scores)


@body.register
def _(result: TokenMatrix, names: Sequence[str] | None) -> Drawing:
    return text(result.tokens.text, result.tokens.blocks, result.segments, result.scores.sum(0).tolist())


def text(content: str, blocks: Sequence[Block], segments: Sequence[Span], scores: Sequence[float]) -> Drawing:
    """The text in lines, each segment on its colour; a paragraph that begins from the right is set from the right."""
    drawing, largest = Drawing(WIDTH), colours.scale(scores)
    for block in blocks:
        if block.label:
            drawing.place(_line(block.label, 12, SOFT), gap=6)
        for paragraph in _paragraphs(content, block, segments, scores):
            drawing.place(_set(paragraph, largest), gap=0)
    return drawing


def _paragraphs(
    content: str, block: Block, segments: Sequence[Span], scores: Sequence[float]
) -> Iterator[list[tuple[str, float | None]]]:
    """Lines of the text, each as pieces that do not break, with the score of their segment."""
    score_of = {}
    for (start, end), score in zip(segments, scores):
        score_of.update(dict.fromkeys(range(start, end), score))
    for line in re.finditer(r"[^\n]*", content[block.start : block.end]):
        pieces = []
        for run in re.finditer(r"\s+|\S+", line.group()):
            first = block.start + line.start() + run.start()
            pieces += _same_score(run.group(), [score_of.get(first + place) for place in range(len(run.group()))])
        if pieces:
            yield pieces


def _same_score(run: str, scores: list[float | None]) -> list[tuple[str, float | None]]:
    """A run cut where its score changes."""
    cuts = [0, *(place for place in range(1, len(run)) if scores[place] != scores[place - 1]), len(run)]
    return [(run[a:b], scores[a]) for a, b in itertools.pairwise(cuts)]


def _set(pieces: list[tuple[str, float | None]], largest: float) -> Drawing:
    """One paragraph, wrapped at the margin; a piece that is longer than a line is cut."""
    drawing, room = Drawing(WIDTH, LEADING), WIDTH - 2 * MARGIN
    right = _from_the_right("".join(piece for piece, _ in pieces))
    x = 0.0
    for piece, score in (part for pair in pieces for part in _cut(*pair, room)):
        width = text_width(piece, SIZE)
        if x and x + width > room:
            x, drawing.height = 0.0, drawing.height + LEADING
            if piece.isspace():
                continue
        left = MARGIN + (room - x - width if right else x)
        if score is not None:
            drawing.add(Box(left, drawing.height - LEADING + 3, width, LEADING - 5, colours.mixed(score, largest)))
        if not piece.isspace() and width:
            colour = SOFT if score is None else INK
            drawing.add(Label(left, drawing.height - 8, piece, SIZE, colour, width=width))
        x += width
    return drawing


def _cut(piece: str, score: float | None, room: float) -> list[tuple[str, float | None]]:
    most = max(1, int(room / (SIZE * 1.2)))
    if text_width(piece, SIZE) <= room:
        return [(piece, score)]
    return [(piece[first : first + most], score) for first in range(0, len(piece), most)]


def _from_the_right(line: str) -> bool:
    """Whether its first letter with a direction belongs to a script from right to left."""
    kinds = (unicodedata.bidirectional(character) for character in line)
    return next((kind in ("R", "AL") for kind in kinds if kind in ("L", "R", "AL")), False)


def _bars(names: Sequence[str], scores: Sequence[float]) -> Drawing:
    drawing, largest = Drawing(WIDTH), colours.scale(scores)
    order = sorted(range(len(scores)), key=lambda index: -abs(scores[index]))[:MOST_BARS]
    middle, reach = WIDTH * 0.62, WIDTH * 0.25
    for row, index in enumerate(order):
        y, length = row * 24.0, reach * min(1.0, abs(scores[index]) / largest)
        blue, orange = "#4285d6", "#e67e22"
        left, fill = (middle, blue) if scores[index] >= 0 else (middle - length, orange)
        drawing.add(
            Label(MARGIN, y + 16, names[index][:32], 13),
            Box(left, y + 5, max(length, 1), 14, fill),
            Label(WIDTH - MARGIN, y + 16, number(scores[index]), 12, SOFT, "end"),
        )
    drawing.add(Box(middle - 0.5, 0, 1, len(order) * 24.0, LINE))
    drawing.height = len(order) * 24.0
    return drawing


def _images(point: Any, scores: Any) -> Drawing:
    height, width = point.shape[1:]
    side = (WIDTH - 3 * MARGIN) / 2
    drawing = Drawing(WIDTH, side * height / width)
    image, over = pictures.shown(point), pictures.overlay(image_scores(point, scores))
    for left, layers in ((MARGIN, [image]), (2 * MARGIN + side, [image, over])):
        drawing.add(*(Picture(left, 0, side, drawing.height, pixels) for pixels in layers))
    return drawing


def _line(content: str, size: float, colour: str) -> Drawing:
    """One line of words, wrapped."""
    drawing, room = Drawing(WIDTH), (WIDTH - 2 * MARGIN) / (size * 0.56)
    words, lines = content.split(), [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + 1 + len(word) > room:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()[: int(room)]
    for index, line in enumerate(lines):
        drawing.add(Label(MARGIN, (index + 1) * size * 1.35, line, size, colour))
    drawing.height = len(lines) * size * 1.35 + 4
    return drawing
