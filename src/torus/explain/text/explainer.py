"""A model and its tokenizer, for many texts."""

from __future__ import annotations

from typing import Any

from torus.explain.text.kept import Kept
from torus.explain.text.matrix import TokenMatrix, explain_each_token
from torus.explain.text.result import TextExplanation
from torus.explain.text.run import TextPlan, explain_text, plan_text
from torus.explain.text.tokens import Messages, as_tokenizer


class TextExplainer:
    """`explain_text`, `explain_each_token` and `plan_text` of one model, as methods.

    The same as those, but for what ``mode="compiled"`` captures: here it serves later texts of the same lengths, for
    as long as this object lives. Not for texts with a shared prefix, which is part of what is captured. Use it from one
    thread at a time.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, as_tokenizer(tokenizer)
        self._kept = Kept()

    def explain(self, prompt: str | Messages, target: str | int | None = None, **options: Any) -> TextExplanation:
        return explain_text(self.model, self.tokenizer, prompt, target, kept=self._kept, **options)

    def each_token(self, prompt: str | Messages, target: str | int | None = None, **options: Any) -> TokenMatrix:
        return explain_each_token(self.model, self.tokenizer, prompt, target, kept=self._kept, **options)

    def plan(self, prompt: str | Messages, target: str | int | None = None, **options: Any) -> TextPlan:
        return plan_text(self.model, self.tokenizer, prompt, target, **options)
