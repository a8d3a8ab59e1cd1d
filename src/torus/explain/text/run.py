"""Attribution of texts in one call: `explain_text`; its cost before it runs: `plan_text`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from torus.cli.texts import plural
from torus.explain import methods
from torus.explain.methods import Run
from torus.explain.plan import Plan, plan
from torus.explain.points import Points
from torus.explain.run import explain
from torus.explain.text.lengths import rounded
from torus.explain.text.presence import Presence
from torus.explain.text.result import TextExplanation
from torus.explain.text.task import Task, task
from torus.explain.text.tokens import Messages

TOKENS_PER_CALL = 8192
"""Rows times length of one call of the model at most, unless `chunk` or `budget` says otherwise."""

_NO_DUMMIES = frozenset(("exact_shapley", "kernel_shap", "lime"))
"""Methods that would pay for a segment that changes nothing, or give it another number than exactly 0."""


def by_segment(name: str) -> bool:
    """Whether a method sees which segments are there, and needs no gradient. The others see the token embeddings."""
    return not getattr(methods.method(name), "gradients", True)


def explain_text(
    model: Any,
    tokenizer: Any,
    prompt: str | Messages,
    target: str | int | None = None,
    *,
    method: str = "feature_ablation",
    chunk: int | None = None,
    **options: Any,
) -> TextExplanation:
    """Attribute what a language model says, or an encoder finds, to the words of a text.

    Args:
        model: a causal language model, a text classifier or a sentence encoder with the interface of transformers.
        tokenizer: its tokenizer, of transformers or tokenizers, or a local directory.
        prompt: a text, or a chat: messages with a `role` and `content`, written by the tokenizer's chat template.
        target: for a language model the text or token that is to follow (the most probable if not given): its
            log-probability is explained, the sum over its tokens. For a classifier a class, by number or label.
        method: a name of `torus.explain.METHODS`; those that need values alone replace segments, the others
            attribute to the token embeddings, whose elements are summed.
        chunk: rows that run at once at most; the default keeps a call under `TOKENS_PER_CALL` tokens.
        options: `against`, a token or class whose score is subtracted (why this rather than that?); `generate`, let
            the model continue with so many tokens and explain them; `similar_to`, a text whose embedding the one
            of `prompt` is compared with; `score`, "log_prob", "logit" or "prob"; `by`, "token", "word", "sentence",
            "line", "paragraph" or spans of characters; `replacement`, the token in the place of what is left out (mask,
            padding or unknown token if not given); `explain_continuation`, attribute to generated tokens too;
            `share_prefix`, run what comes before the first segment once; and those of `explain`. `kept` is for
            `torus.explain.text.explainer.TextExplainer`.

    Raises:
        ValueError: an argument does not fit; the message says which and what does.

    Example:
        >>> found = explain_text(model, tokenizer, "The capital of France is", " Paris", against=" Rome")
        >>> found.save("report.html")
    """
    asked, options = split(options)
    what = task(model, tokenizer, prompt, target, **asked)
    return explain_task(what, method, chunk=chunk, **options)


def explain_task(what: Task, method: str, *, chunk: int | None = None, **options: Any) -> TextExplanation:
    """`explain_text` of what `torus.explain.text.task.task` made ready."""
    if chunk is None and options.get("budget") is None:
        chunk = rows_per_call(what)
    segmented = by_segment(method)
    explained = _explain_presence if segmented else _explain_embeddings
    found = explained(what, method, chunk=chunk, **options)
    (attribution,) = found.attributions
    per_segment = attribution[0, : len(what.segments)] if segmented else what.segments.sum(attribution[0].sum(-1))
    error = found.standard_error if segmented else None
    return TextExplanation(
        **{field.name: getattr(found, field.name) for field in dataclasses.fields(found)},
        tokens=what.tokens,
        segments=what.segments.spans,
        scores=tuple(per_segment.tolist()),
        score_errors=None if error is None else tuple(error[0][0, : len(what.segments)].tolist()),
        question=what.question,
        replacement=what.replacement,
    )


@dataclass(frozen=True)
class TextPlan:
    """A `Plan` in tokens: every row has `length` of them, after a `prefix` that is run once."""

    plan: Plan
    length: int
    prefix: int
    segments: int
    parameters: int

    @property
    def tokens(self) -> int:
        """How many tokens the model will see, filling included."""
        return self.prefix + self.length * (self.plan.values + self.plan.gradients)

    @property
    def operations(self) -> int:
        """About how many floating-point operations: 2 a parameter and token forward, twice that backward."""
        return 2 * self.parameters * (self.tokens + 2 * self.length * self.plan.gradients)

    def __str__(self) -> str:
        row = f"{plural(self.segments, 'segment')}, {self.length} tokens a row"
        shared = f", after {self.prefix} tokens that run once" if self.prefix else ""
        return f"{self.plan}; {row}{shared}; {self.tokens:,} tokens, about {self.operations:.1e} operations"


def plan_text(
    model: Any,
    tokenizer: Any,
    prompt: str | Messages,
    target: str | int | None = None,
    *,
    method: str = "feature_ablation",
    chunk: int | None = None,
    tol: float = 1e-3,
    seed: int = 0,
    **options: Any,
) -> TextPlan:
    """What `explain_text` with the same arguments will cost. For methods that adapt: the least.

    A target that the model has to choose, or a shared prefix, is made ready here, by one call of the model each.
    """
    asked, options = split(options)
    for name in ("mode", "progress", "baselines", "budget"):
        options.pop(name, None)
    what = task(model, tokenizer, prompt, target, **asked)
    run = Run(tolerance=tol, seed=seed, chunk=chunk or rows_per_call(what))
    parameters = sum(parameter.numel() for parameter in what.model.parameters())
    points = _shapes(what, method)
    found = plan(method, points, tuple(torch.zeros_like(tensor) for tensor in points), run, **options)
    return TextPlan(found, what.ids.shape[1], what.prefix, len(what.segments), parameters)


def rows_per_call(what: Task) -> int:
    """A power of two, so that rows have few sizes."""
    most = max(1, TOKENS_PER_CALL // (what.prefix + what.ids.shape[1]))
    return 1 << (most.bit_length() - 1)


def features(what: Task, method: str) -> int:
    """Segments, and some that change nothing, so that there are few numbers of them."""
    count = len(what.segments)
    return count if method in _NO_DUMMIES else rounded(count)


def presence_of(what: Task, method: str) -> Presence:
    """The text as a function of its segments."""
    return what.kept.of(Presence(what.score, what.ids, what.replaced, what.segments, features(what, method)))


def _explain_presence(what: Task, method: str, **options: Any) -> Any:
    presence = presence_of(what, method)
    there = torch.ones(1, presence.features).to(what.ids.device)
    return explain(presence, there, method=method, **options)


def _explain_embeddings(what: Task, method: str, **options: Any) -> Any:
    layer = what.model.get_input_embeddings()
    if "baselines" not in options:
        with torch.no_grad():
            options["baselines"] = layer(what.replaced)
    return explain(what.score, what.ids, method=method, layer=layer, **options)


def _shapes(what: Task, method: str) -> Points:
    """Points like those of the run, on the CPU."""
    if by_segment(method):
        return (torch.ones(1, features(what, method)),)
    weight = what.model.get_input_embeddings().weight
    return (torch.ones(1, what.ids.shape[1], weight.shape[1]),)


_ASKED = frozenset(
    ("against", "generate", "similar_to", "score", "by", "replacement", "explain_continuation", "share_prefix", "kept")
)


def split(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is asked of the text, and what `explain` is told."""
    asked = {name: value for name, value in options.items() if name in _ASKED}
    return asked, {name: value for name, value in options.items() if name not in _ASKED}
