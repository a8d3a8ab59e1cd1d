"""Which words made each token of a continuation: a row of scores a token."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from torus.explain import modes
from torus.explain.certificate import Certificate
from torus.explain.chunks import Chunked
from torus.explain.coalitions.ablation import feature_ablation
from torus.explain.function import ModelFunction
from torus.explain.measure import Counted, measured
from torus.explain.methods import Run
from torus.explain.points import Points
from torus.explain.report.reported import Reported
from torus.explain.run import certify
from torus.explain.text.presence import Presence
from torus.explain.text.run import explain_task, presence_of, rows_per_call, split
from torus.explain.text.scores import NextTokens
from torus.explain.text.spans import Span
from torus.explain.text.task import Task, task
from torus.explain.text.tokens import Messages, Tokens


@dataclass(frozen=True)
class TokenMatrix(Reported):
    """`scores` is [tokens of the continuation, segments], on the CPU; `values` the explained number of each token.

    A row is certified by the certificate with its index, or by the only one.
    """

    tokens: Tokens
    segments: tuple[Span, ...]
    scores: torch.Tensor
    values: tuple[float, ...]
    certificates: tuple[Certificate, ...]
    question: str

    @property
    def generated(self) -> tuple[str, ...]:
        """The text of each token of the continuation."""
        return tuple(self.tokens.text[start:end] for start, end in self.tokens.spans[-self.tokens.generated :])


def explain_each_token(
    model: Any,
    tokenizer: Any,
    prompt: str | Messages,
    target: str | int | None = None,
    *,
    method: str = "feature_ablation",
    chunk: int | None = None,
    **options: Any,
) -> TokenMatrix:
    """`explain_text` for each token of a continuation by itself; the arguments are the same, without `against`.

    Leaving out segments takes the rows of one explanation for all tokens; other methods run once a token, with programs
    of one shape.
    """
    asked, options = split(options)
    what = task(model, tokenizer, prompt, target, **asked)
    if not isinstance(what.score, NextTokens):
        raise ValueError("the model does not continue texts: there are no tokens to explain one by one")
    if method == "feature_ablation":
        return _together(what, chunk or rows_per_call(what), **options)
    return _in_turn(what, what.score, method, chunk=chunk, **options)


class _EachToken(ModelFunction):
    """The scores of all tokens, (n, tokens and filling), as a function of which segments are there."""

    def __init__(self, presence: Presence, points: Points) -> None:
        super().__init__(presence, points, _all_of_them)  # the target tells its programs from those of the sum
        self._each = presence.each

    def __call__(self, points: Points) -> torch.Tensor:
        return self._each(*points)


def _all_of_them(output: torch.Tensor) -> torch.Tensor:
    return output


def _together(what: Task, chunk: int, *, mode: str = "default", tol: float = 1e-3, seed: int = 0) -> TokenMatrix:
    """All tokens at once: the model gives the score of each of them for every row."""
    presence = presence_of(what, "feature_ablation")
    points = (torch.ones(1, presence.features).to(what.ids.device),)
    function = _EachToken(presence, points)
    run = Run(tolerance=tol, seed=seed, chunk=chunk)
    with modes.running(mode):
        values = function.value(points)
        with measured(what.ids.device) as cost:
            prepared = Counted(Chunked(modes.Compiled(function) if mode == "compiled" else function, chunk), cost)
            found = feature_ablation(prepared, points, tuple(map(torch.zeros_like, points)), run)
        per_token = found.attributions[0][0].T[: what.tokens.generated, : len(what.segments)].cpu()
    certified = certify("feature_ablation", found, cost, run, points, mode)
    return TokenMatrix(
        what.tokens,
        what.segments.spans,
        per_token,
        tuple(values[0, : what.tokens.generated].tolist()),
        (certified,),
        what.question,
    )


def _in_turn(what: Task, score: NextTokens, method: str, **options: Any) -> TokenMatrix:
    """Token by token, with a score of one token each."""
    found = []
    for place, token in zip(score.places.tolist()[: what.tokens.generated], score.tokens.tolist()):
        one = what.kept.of(NextTokens(what.model, [place], [token], kind=score.kind, prefix=score.prefix))
        found.append(explain_task(replace(what, score=one), method, **options))
    return TokenMatrix(
        what.tokens,
        what.segments.spans,
        torch.tensor([each.scores for each in found]),
        tuple(float(each.values) for each in found),
        tuple(each.certificate for each in found),
        what.question,
    )
