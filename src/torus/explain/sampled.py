"""Methods that average gradients at random points, with the error of sampling."""

from __future__ import annotations

import torch

from torus.explain.chunks import Chunked
from torus.explain.function import Function
from torus.explain.methods import Attribution, Run, holding
from torus.explain.moments import Moments, sample
from torus.explain.points import Points, each, flat, repeat, rows, unflat
from torus.explain.references import References, as_references, mean

KINDS = ("mean", "squared", "variance")


@holding(lambda batch=16, **_: 6 * batch)
def smoothgrad(
    function: Function,
    points: Points,
    baselines: Points,
    run: Run,
    *,
    kind: str = "mean",
    noise: float = 0.15,
    samples: int = 128,
    batch: int = 16,
) -> Attribution:
    """The mean gradient around the inputs under normal noise.

    Smilkov, Thorat, Kim, Viégas, Wattenberg: SmoothGrad, removing noise by adding noise (2017). `error` is the largest
    standard error in units of the largest attribution of an example; draws end where it is under the tolerance.

    Options:
        kind: "mean"; "squared", of squared gradients (Hooker, Erhan, Kindermans, Kim: A benchmark for interpretability
            methods in deep neural networks, 2019); "variance", of gradients (Adebayo, Gilmer, Goodfellow, Kim: Local
            explanation methods for deep neural networks lack sensitivity to parameter values, 2018).
        noise: standard deviation in units of the range of each example's input.
        samples: of each example at most; a multiple of `batch`.
        batch: samples in one call.
    """
    _check(samples, batch)
    if kind not in KINDS:
        raise ValueError(f"there is no kind {kind!r}; there are {', '.join(KINDS)}")
    generator = run.generator()

    def draw() -> torch.Tensor:
        moved = each(lambda x: _noisy(x, noise, batch, generator), points)
        gradient = flat(function.grad(moved)[1]).unflatten(0, (batch, -1))
        return gradient.square() if kind == "squared" else gradient

    def estimate(found: Moments) -> tuple[torch.Tensor, torch.Tensor]:
        if kind != "variance":
            return found.mean, found.standard_error
        return found.variance, found.variance * (2 / (found.count - 1)) ** 0.5  # as of normal samples

    def error(found: Moments) -> torch.Tensor:
        value, doubt = estimate(found)
        return _relative(doubt.amax(1), value.abs().amax(1))

    found, last, history = sample(draw, samples, error, run.tolerance, lambda done: run.progress(done, samples))
    value, doubt = (unflat(elements, points) for elements in estimate(found))
    return Attribution(
        value,
        error=last,
        standard_error=doubt,
        verdict=_verdict(last, run.tolerance, found.count, "the largest attribution"),
        history=history,
    )


@holding(lambda batch=16, **_: 8 * batch)
def expected_gradients(
    function: Function,
    points: Points,
    baselines: Points,
    run: Run,
    *,
    references: References = None,
    samples: int = 512,
    batch: int = 16,
) -> Attribution:
    """The mean of gradients times ways, each at a random place on the way from a random baseline.

    Erion, Janizek, Sturmfels, Lundberg, Lee: Improving performance of deep learning models with axiomatic attribution
    priors and expected gradients (2021). The places of a batch are stratified, one in each of its equal parts of the
    way. `error` is the standard error of an example's sum or of its worst element, in units of the change explained.

    Options:
        references: m baselines for every example, (m, ...) each, in the place of `baselines`.
        samples: of each example at most; a multiple of `batch` and four times that at least.
        batch: samples in one call.
    """
    _check(samples, batch, least=4)
    starts, _ = as_references(references, points, baselines)
    generator, examples, ends = run.generator(), rows(points), repeat(points, batch)
    before = mean(Chunked(function, batch).value(starts), examples)
    expected = (function.value(points) - before).to(flat(points).dtype)

    def draw() -> torch.Tensor:
        bases, place = _places(starts, batch, examples, generator)
        moved = each(lambda base, end: base + _column(place, end) * (end - base), bases, ends)
        terms = flat(function.grad(moved)[1]) * flat(each(torch.sub, ends, bases))
        batched = terms.unflatten(0, (batch, -1)).mean(0, keepdim=True)
        return torch.cat([batched, batched.sum(-1, keepdim=True)], -1)

    def error(found: Moments) -> torch.Tensor:
        return _relative(found.standard_error.amax(1), expected.abs())

    found, last, history = sample(
        draw, samples // batch, error, run.tolerance, lambda done: run.progress(done * batch, samples), least=4
    )
    return Attribution(
        unflat(found.mean[:, :-1], points),
        expected=expected,
        error=last,
        standard_error=unflat(found.standard_error[:, :-1], points),
        verdict=_verdict(last, run.tolerance, found.count * batch, "the change"),
        history=tuple((count * batch, worst) for count, worst in history),
    )


def _check(samples: int, batch: int, least: int = 1) -> None:
    if batch < 2 or samples % batch or samples < least * batch:
        raise ValueError(
            f"samples={samples} and batch={batch}: a batch has 2 or more, and samples are {least} or more batches"
        )


def _noisy(x: torch.Tensor, noise: float, times: int, generator: torch.Generator) -> torch.Tensor:
    """Each row `times` times, with normal noise in units of its range."""
    drawn = torch.randn(times, *x.shape, generator=generator).to(x.dtype).to(x.device)
    span = x.flatten(1).amax(1) - x.flatten(1).amin(1)
    return (x + noise * _column(span, x) * drawn).flatten(0, 1)


def _places(starts: Points, batch: int, examples: int, generator: torch.Generator) -> tuple[Points, torch.Tensor]:
    """A random baseline of each example, and a place in (0, 1) in each of `batch` equal parts; all examples in turn."""
    chosen = torch.randint(rows(starts) // examples, (batch, examples), generator=generator)
    index = (chosen * examples + torch.arange(examples)).flatten().to(starts[0].device)
    place = (torch.arange(batch)[:, None] + torch.rand(batch, examples, generator=generator)) / batch
    return each(lambda start: start[index], starts), place.flatten().to(starts[0].device)


def _column(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A number for each row, (n,), that multiplies the rows of a tensor."""
    return values.to(like.dtype).view(-1, *[1] * (like.ndim - 1))


def _relative(error: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return error / scale.clamp_min(torch.finfo(scale.dtype).tiny)


def _verdict(error: torch.Tensor, tolerance: float, samples: int, unit: str) -> str:
    worst = float(error.max())
    if worst <= tolerance:
        return ""
    return f"sampling error {worst:.2g} of {unit} after {samples} samples, tolerance {tolerance:.2g}"
