"""A drawing as PNG, through matplotlib."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from torus.explain.report.drawing import Box, Drawing, Label, Lines, Picture
from torus.explain.report.markup import printable

DPI = 100


def write_png(drawing: Drawing, path: Path, *, resolution: float = 2.0) -> None:
    """Write it with `resolution` pixels for each of its own. Raises ImportError without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("a PNG needs matplotlib: pip install matplotlib, or save as .svg or .html") from error
    figure = Figure((drawing.width / DPI, drawing.height / DPI), dpi=DPI * resolution, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, drawing.width), ylim=(drawing.height, 0))
    axes.set_axis_off()
    for order, shape in enumerate(drawing.shapes):
        _draw(axes, shape, order)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # a sign that no font has is a box
        figure.savefig(path, format="png")


def _draw(axes: Any, shape: Any, order: int) -> None:
    from matplotlib.patches import Rectangle

    match shape:
        case Box():
            place = (shape.x, shape.y)
            axes.add_patch(Rectangle(place, shape.width, shape.height, color=shape.fill, linewidth=0, zorder=order))
        case Lines():
            axes.plot(*zip(*shape.points), color=shape.colour, linewidth=shape.width * 0.72, zorder=order)
        case Picture():
            extent = (shape.x, shape.x + shape.width, shape.y + shape.height, shape.y)
            axes.imshow(shape.pixels.numpy(), extent=extent, aspect="auto", interpolation="nearest", zorder=order)
        case Label():
            _write(axes, shape, order)


def _write(axes: Any, label: Label, order: int) -> None:
    """Matplotlib has no fitting to a width: a label that fills its room stands in the middle of it."""
    place = {"start": "left", "middle": "center", "end": "right"}[label.anchor]
    x = label.x
    if label.width is not None:
        x, place = x + label.width / 2, "center"
    family = ["monospace", "sans-serif"] if label.width is not None else ["sans-serif"]
    axes.text(
        x,
        label.y,
        printable(label.text),
        size=label.size * 0.72,
        color=label.colour,
        ha=place,
        va="baseline",
        family=family,
        zorder=order,
        parse_math=False,
    )
