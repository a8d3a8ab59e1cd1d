"""A page with one bar for each figure that has a target: how far it is from the target, on a logarithmic scale."""

from __future__ import annotations

import html
import math
from typing import Any

from benchmarks.report import show

ROW, LEFT, WIDTH = 24, 520, 360
COLOURS = {"met": "#2a9d62", "missed": "#d1495b"}
DECADES = 1.5
"""How far the axis reaches to either side of the target, in powers of ten; bars beyond are cut."""


def page(found: dict[str, Any]) -> str:
    """A self-contained web page; `found` is what the run returned."""
    figures = [f for result in found["results"].values() for f in result["figures"] if f["limit"] is not None]
    bars = "".join(_bar(i, figure) for i, figure in enumerate(figures))
    height = ROW * (len(figures) + 1)
    middle = LEFT + WIDTH / 2
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items() if version)
    load = " ".join(f"{value:.1f}" for value in found["machine"]["load_before"])
    return (
        "<!doctype html><meta charset='utf-8'><title>Benchmarks</title>"
        "<style>body{font:14px sans-serif;margin:2em;color:#222}text{font-size:13px}</style><h1>Benchmarks</h1>"
        "<p>Bars start at the target: to the left is worse, to the right better, a full half is a factor of "
        f"{10**DECADES:.0f}. x marks ratios.</p>"
        f"<p>{html.escape(versions)}; {found['machine']['cores']} cores, load average {load}, "
        f"medians of {found['rounds']} rounds.</p>"
        f"<svg width='{LEFT + WIDTH + 260}' height='{height}' role='img'>{bars}"
        f"<line x1='{middle}' x2='{middle}' y1='0' y2='{height - ROW}' stroke='#222'/></svg>"
    )


def _bar(row: int, figure: dict[str, Any]) -> str:
    y, middle = row * ROW, LEFT + WIDTH / 2
    label = html.escape(figure["name"])
    value = show(figure["value"], figure["unit"]) if figure["value"] is not None else figure["note"]
    tail = html.escape(f"{value} (target {figure['target']})")
    words = (
        f"<text x='{LEFT - 8}' y='{y + 16}' text-anchor='end'>{label}</text>"
        f"<text x='{LEFT + WIDTH + 8}' y='{y + 16}'>{tail}</text>"
    )
    if figure["value"] is None:
        return words
    length = _better(figure) * WIDTH / 2
    x = middle if length > 0 else middle + length
    colour = COLOURS[figure["verdict"]]
    return f"{words}<rect x='{x:.1f}' y='{y + 4}' width='{max(abs(length), 2):.1f}' height='16' fill='{colour}'/>"


def _better(figure: dict[str, Any]) -> float:
    """From -1 (worse than the target by the whole axis) to 1."""
    value, limit = figure["value"], figure["limit"]
    if value <= 0 or limit <= 0:  # a count or a growth of nothing, or a target of nothing
        return 1.0 if figure["verdict"] == "met" else -1.0
    decades = math.log10(value / limit) * (1 if figure["at_least"] else -1)
    return max(-1.0, min(1.0, decades / DECADES))
