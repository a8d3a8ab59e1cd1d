"""What a report shows of each kind of result: a heading, and parts of HTML."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import torch

from torus.explain.certificate import Certificate
from torus.explain.report import bars, certificate, colours, heatmap, pictures, plots
from torus.explain.report.markup import escape, number, summary, table
from torus.explain.result import Explanation
from torus.explain.text.matrix import TokenMatrix
from torus.explain.text.result import TextExplanation

MOST_EXAMPLES = 16


@singledispatch
def heading(result: Any) -> str:
    """One line, as text: what is explained."""
    raise TypeError(f"there is no report of a {type(result).__name__}")


@singledispatch
def panels(result: Any, names: Sequence[str] | None = None) -> list[str]:
    """The parts of the report, as HTML."""
    raise TypeError(f"there is no report of a {type(result).__name__}")


@heading.register
def _(result: Explanation) -> str:
    return f"Explanation by {result.certificate.method.replace('_', ' ')}"


@heading.register
def _(result: TextExplanation) -> str:
    return f"What decides the {result.question}?"


@heading.register
def _(result: TokenMatrix) -> str:
    return f"What decides each token? The {result.question}"


@panels.register
def _(result: Explanation, names: Sequence[str] | None = None) -> list[str]:
    shown = min(len(result.values), MOST_EXAMPLES)
    parts = [_example(result, example, names) for example in range(shown)]
    if shown < len(result.values):
        parts.append(f'<p class="sum">and {len(result.values) - shown:,} more examples</p>')
    return [*parts, *_quality(result)]


@panels.register
def _(result: TextExplanation, names: Sequence[str] | None = None) -> list[str]:
    largest = colours.scale(result.scores)
    text = heatmap.blocks(result.tokens, result.segments, result.scores, largest)
    everything = bars.ranked(result.texts, result.scores, errors=result.score_errors, what="Segment")
    return [
        heatmap.legend(largest),
        f'<section class="card">{text}{_sum(result, 0)}{_rest(result)}</section>',
        summary("All segments, the strongest first", f"<div>{everything}</div>"),
        *_quality(result),
    ]


@panels.register
def _(result: TokenMatrix, names: Sequence[str] | None = None) -> list[str]:
    largest = colours.scale(result.scores.flatten().tolist())
    total = result.scores.sum(0).tolist()
    texts = [result.tokens.text[start:end] for start, end in result.segments]
    rows = [
        [escape(token.strip() or repr(token)), *(_cell(score, largest) for score in row)]
        for token, row in zip(result.generated, result.scores.tolist())
    ]
    text = heatmap.blocks(result.tokens, result.segments, total, colours.scale(total))
    return [
        heatmap.legend(colours.scale(total)),
        f'<section class="card">{text}<p class="sum">colours: the sum over all tokens</p></section>',
        "<h2>Token by token</h2>",
        table(["", *map(escape, texts)], rows, "matrix"),
        *_certificates(result.certificates),
    ]


def _example(result: Explanation, example: int, names: Sequence[str] | None) -> str:
    title = f'<p class="label">example {example + 1}</p>' if len(result.values) > 1 else ""
    several = len(result.attributions) > 1
    parts = []
    for index, (points, scores) in enumerate(zip(result.points, result.attributions)):
        label = f'<p class="label">input {index + 1}</p>' if several else ""
        parts.append(label + _input(points[example], scores[example], names if not several else None))
    return f'<section class="card">{title}{"".join(parts)}{_sum(result, example)}</section>'


def is_image(point: torch.Tensor) -> bool:
    """Whether an input of one example looks like one: channels first, and at least 8 pixels a side."""
    return point.ndim == 3 and min(point.shape[1:]) >= 8 and len(point) <= max(point.shape[1:])


def image_scores(point: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """The map (h, w) over an image: the sum over its channels."""
    return scores.detach().to("cpu", torch.float32).sum(0)


def features(
    point: torch.Tensor, scores: torch.Tensor, names: Sequence[str] | None
) -> tuple[list[str], list[float], list[float]]:
    """Names, scores and values of the elements of an input."""
    if names is not None and len(names) != scores.numel():
        raise ValueError(f"there are {len(names)} names for {scores.numel()} features")
    found = list(names) if names is not None else [_place(index, scores.shape) for index in range(scores.numel())]
    return found, scores.detach().flatten().tolist(), point.detach().flatten().tolist()


def _input(point: torch.Tensor, scores: torch.Tensor, names: Sequence[str] | None) -> str:
    if is_image(point) and point.shape == scores.shape:
        return _image(point, image_scores(point, scores))
    found, numbers, values = features(point, scores, names)
    return bars.ranked(found, numbers, values=values if len(values) == len(numbers) else None)


def _image(point: torch.Tensor, scores: torch.Tensor) -> str:
    source, over = pictures.data_uri(pictures.shown(point)), pictures.data_uri(pictures.overlay(scores))
    return (
        '<div class="images">'
        f'<figure><span class="picture"><img alt="the input" src="{source}"></span>'
        "<figcaption>The input</figcaption></figure>"
        f'<figure><span class="picture"><img alt="" src="{source}"><img alt="scores over it" src="{over}"></span>'
        "<figcaption>Blue raises the number, orange lowers it; point at it for the input</figcaption></figure></div>"
    )


def _sum(result: Explanation, example: int) -> str:
    """How the number comes about."""
    total = sum(float(scores[example].detach().double().cpu().sum()) for scores in result.attributions)
    value, baseline = float(result.values[example]), float(result.baseline_values[example])
    return (
        f'<p class="sum">explained number {number(value)}, at the baseline {number(baseline)}, difference '
        f"{number(value - baseline)}; sum of the scores {number(total)}</p>"
    )


def _rest(result: TextExplanation) -> str:
    """What is not in the colours, unless it is rounding."""
    if abs(result.rest) <= 1e-5 * max(1e-30, sum(map(abs, result.scores))):
        return ""
    return f'<p class="sum">{number(result.rest)} of that sum is with tokens that are in no segment</p>'


def _quality(result: Explanation) -> list[str]:
    parts = ["<h2>Can it be trusted?</h2>", certificate.block(result.certificate)]
    if plots.plottable(result.history):
        plot = plots.convergence(result.history, result.certificate.tolerance).svg()
        parts.append(f'<section class="card"><p class="label">convergence</p>{plot}</section>')
    return parts


def _certificates(found: Sequence[Certificate]) -> list[str]:
    worst = next((one for one in found if not one.passed), found[0])
    title = "Can it be trusted?" if len(found) == 1 else f"Can it be trusted? The worst of {len(found)} runs"
    return [f"<h2>{title}</h2>", certificate.block(worst)]


def _cell(score: float, largest: float) -> str:
    return f'<mark style="{colours.shade(score, largest)}">{number(score)}</mark>'


def _place(index: int, shape: torch.Size) -> str:
    """The position of an element: ``7`` or ``2, 3``."""
    if len(shape) <= 1:
        return f"feature {index}"
    places = []
    for size in reversed(shape):
        places.append(index % size)
        index //= size
    return ", ".join(map(str, reversed(places)))
