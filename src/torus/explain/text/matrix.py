"""Which words made each token of a continuation: a row of scores a token."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from torus.explain import modes
from torus.explain.certificate import Certificate
from torus.explain.chunks import Chunked
from torus.explain.function import Program
from torus.explain.leave_one_out import leave_one_out
from torus.explain.measure import Counted, measured
from torus.explain.methods import Run
from torus.explain.points import Points
from torus.explain.report.reported import Reported
from torus.explain.run import certify
from torus.explain.text.presence import Presence
from torus.explain.text.run import explain_task, features, rows_per_call, split
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
    method: str = "leave_one_out",
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
    if method == "leave_one_out" and options.get("mode") != "compiled":  # what is compiled has one number a row
        return _together(what, what.score, chunk or rows_per_call(what), **options)
    return _in_turn(what, what.score, method, chunk=chunk, **options)


class _EachToken:
    """The scores of all tokens, (n, tokens), as a function of which segments are there."""

    examples = 1

    def __init__(self, presence: Presence, score: NextTokens) -> None:
        self.presence, self.score = presence, score

    def value(self, points: Points) -> torch.Tensor:
        with torch.no_grad():
            return self.score.each(self.presence.texts(points[0]))[:, : self.score.count]

    def grad(self, points: Points) -> tuple[torch.Tensor, Points]:
        raise TypeError("the scores of all tokens have no single gradient")

    def apply(self, program: Program, points: Points) -> Points:
        raise TypeError("the scores of all tokens are no single number to take apart")


def _together(
    what: Task, score: NextTokens, chunk: int, *, mode: str = "default", tol: float = 1e-3, seed: int = 0
) -> TokenMatrix:
    """All tokens at once: the model gives the score of each of them for every row."""
    presence = Presence(score, what.ids, what.replaced, what.segments, features(what, "leave_one_out"))
    points = (torch.ones(1, presence.features).to(what.ids.device),)
    function = _EachToken(presence, score)
    run = Run(tolerance=tol, seed=seed)
    with modes.running(mode):
        values = function.value(points)
        with measured(what.ids.device) as cost:
            prepared = Counted(Chunked(function, chunk), cost)
            found = leave_one_out(prepared, points, tuple(map(torch.zeros_like, points)), run)
        per_token = found.attributions[0][0].T[:, : len(what.segments)].cpu()
    certified = certify("leave_one_out", found, cost, run, points, mode)
    return TokenMatrix(
        what.tokens, what.segments.spans, per_token, tuple(values[0].tolist()), (certified,), what.question
    )


def _in_turn(what: Task, score: NextTokens, method: str, **options: Any) -> TokenMatrix:
    """Token by token, with a score of one token each."""
    found = []
    for place, token in zip(score.places.tolist()[: score.count], score.tokens.tolist()):
        one = NextTokens(what.model, [place], [token], kind=score.kind, prefix=score.prefix)
        found.append(explain_task(replace(what, score=one), method, **options))
    return TokenMatrix(
        what.tokens,
        what.segments.spans,
        torch.tensor([each.scores for each in found]),
        tuple(float(each.values) for each in found),
        tuple(each.certificate for each in found),
        what.question,
    )
