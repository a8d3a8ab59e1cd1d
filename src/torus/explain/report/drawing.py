"""A picture of boxes, texts, lines and images, laid out once and written as SVG or, through matplotlib, as PNG."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from torus.explain.report import pictures
from torus.explain.report.markup import escape

INK, SOFT, LINE = "#1b1f24", "#5b6470", "#dfe3e8"
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True)
class Box:
    """A filled rectangle."""

    x: float
    y: float
    width: float
    height: float
    fill: str

    def svg(self) -> str:
        return (
            f'<rect x="{self.x:.1f}" y="{self.y:.1f}" width="{self.width:.1f}" height="{self.height:.1f}" '
            f'fill="{self.fill}"/>'
        )


@dataclass(frozen=True)
class Label:
    """A line of text; `y` is its baseline. `width`, where given, is the room it fills exactly."""

    x: float
    y: float
    text: str
    size: float = 13
    colour: str = INK
    anchor: Anchor = "start"
    width: float | None = None

    def svg(self) -> str:
        fitted = "" if self.width is None else f' textLength="{self.width:.1f}" lengthAdjust="spacingAndGlyphs"'
        family = "system-ui, sans-serif" if self.width is None else "ui-monospace, monospace"
        return (
            f'<text x="{self.x:.1f}" y="{self.y:.1f}" font-size="{self.size:g}" font-family="{family}" '
            f'fill="{self.colour}" text-anchor="{self.anchor}"{fitted}>{escape(self.text)}</text>'
        )


@dataclass(frozen=True)
class Lines:
    """Straight lines through points."""

    points: Sequence[tuple[float, float]]
    colour: str
    width: float = 1.0

    def svg(self) -> str:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in self.points)
        return f'<polyline points="{points}" fill="none" stroke="{self.colour}" stroke-width="{self.width:g}"/>'


@dataclass(frozen=True)
class Picture:
    """Pixels (h, w, 3 or 4), uint8."""

    x: float
    y: float
    width: float
    height: float
    pixels: torch.Tensor

    def svg(self) -> str:
        return (
            f'<image x="{self.x:.1f}" y="{self.y:.1f}" width="{self.width:.1f}" height="{self.height:.1f}" '
            f'preserveAspectRatio="none" style="image-rendering:pixelated" href="{pictures.data_uri(self.pixels)}"/>'
        )


Shape = Box | Label | Lines | Picture


@dataclass
class Drawing:
    """Shapes on a page of this size, in pixels; later ones lie on earlier ones."""

    width: float
    height: float = 0.0
    shapes: list[Shape] = field(default_factory=list)

    def add(self, *shapes: Shape) -> None:
        self.shapes += shapes

    def place(self, other: Drawing, gap: float = 16.0) -> None:
        """Another drawing below what is there."""
        top = self.height + (gap if self.height else 0)
        self.shapes += [moved(shape, top) for shape in other.shapes]
        self.height = top + other.height

    def svg(self, background: str | None = None) -> str:
        """An SVG image with nothing outside itself."""
        page = "" if background is None else f'<rect width="100%" height="100%" fill="{background}"/>'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width:g}" height="{self.height:g}" '
            f'viewBox="0 0 {self.width:g} {self.height:g}" role="img">'
            f"{page}{''.join(shape.svg() for shape in self.shapes)}</svg>"
        )


def moved(shape: Shape, down: float) -> Shape:
    """A shape so many pixels lower."""
    from dataclasses import replace

    if isinstance(shape, Lines):
        return replace(shape, points=[(x, y + down) for x, y in shape.points])
    return replace(shape, y=shape.y + down)


def text_width(text: str, size: float) -> float:
    """About how wide a text is in a font of fixed width: ideographs take two places, signs above letters none."""
    return size * 0.6 * sum(map(_places, text))


def _places(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
