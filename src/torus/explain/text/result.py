"""The attribution of a text."""

from __future__ import annotations

from dataclasses import dataclass

from torus.explain.result import Explanation
from torus.explain.text.spans import Span
from torus.explain.text.tokens import Tokens


@dataclass(frozen=True, kw_only=True)
class TextExplanation(Explanation):
    """An explanation with a score for each segment, a span of the text; `question` says what the scores are parts of.

    `score_errors` are standard errors where the method has them. `replacement` is the token that took the place of what
    was left out.
    """

    tokens: Tokens
    segments: tuple[Span, ...]
    scores: tuple[float, ...]
    score_errors: tuple[float, ...] | None
    question: str
    replacement: str

    @property
    def texts(self) -> tuple[str, ...]:
        """The text of each segment."""
        return tuple(self.tokens.text[start:end] for start, end in self.segments)

    @property
    def rest(self) -> float:
        """What the attributions give to tokens in no segment: special tokens, a template, an earlier answer."""
        return sum(float(part.detach().double().sum().cpu()) for part in self.attributions) - sum(self.scores)

    def strongest(self, count: int = 10) -> list[tuple[str, float]]:
        """The segments with the largest scores, by size, with them."""
        return sorted(zip(self.texts, self.scores), key=lambda pair: -abs(pair[1]))[:count]
