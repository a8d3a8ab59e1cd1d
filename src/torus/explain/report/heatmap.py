"""Text with a background for each segment.

Segments are inline, without space of their own, so that the browser lays out the text as it would without them: it
wraps, joins Arabic letters across segments, and finds the direction of each paragraph itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from torus.explain.report import colours
from torus.explain.report.markup import escape, number
from torus.explain.text.spans import Span
from torus.explain.text.tokens import Block, Tokens


def blocks(tokens: Tokens, segments: Sequence[Span], scores: Sequence[float], largest: float) -> str:
    """The parts of the text that a reader sees, each with its label."""
    return "".join(
        (f'<p class="label">{escape(block.label)}</p>' if block.label else "")
        + f'<p class="text" dir="auto">{_marked(tokens.text, block, segments, scores, largest)}</p>'
        for block in tokens.blocks
    )


def legend(largest: float, low: str = "lowers it", high: str = "raises it") -> str:
    """The ramp of colours with its ends."""
    ramp = "".join(f'<i style="{colours.shade(step / 4, 1.0)}"></i>' for step in range(-4, 5))
    return (
        f'<p class="legend"><span>{number(-largest)} {escape(low)}</span><span class="ramp">{ramp}</span>'
        f"<span>{number(largest)} {escape(high)}</span></p>"
    )


def _marked(text: str, block: Block, segments: Sequence[Span], scores: Sequence[float], largest: float) -> str:
    """What is in no segment is there too, in a soft colour."""
    parts, position = [], block.start
    for (start, end), score in zip(segments, scores):
        if end <= block.start or start >= block.end:
            continue
        parts.append(_rest(text[position:start]))
        style, shown = colours.shade(score, largest), escape(text[start:end])
        parts.append(f'<mark style="{style}" title="{number(score)}">{shown}</mark>')
        position = end
    return "".join([*parts, _rest(text[position : block.end])])


def _rest(text: str) -> str:
    return f'<span class="rest">{escape(text)}</span>' if text.strip() else escape(text)
