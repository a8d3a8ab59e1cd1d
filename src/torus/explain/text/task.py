"""What is asked of a text, made ready: its tokens and segments, the number that is explained, and the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from torus.explain.text import scores
from torus.explain.text.lengths import padded, rounded
from torus.explain.text.prefix import Prefix, shareable
from torus.explain.text.segments import Segments, segments
from torus.explain.text.spans import Units
from torus.explain.text.tokens import Messages, Tokens, as_tokenizer, continued, read, read_chat


@dataclass(frozen=True)
class Task:
    """`score` is a module from ids to the explained number, `ids` and `replaced`, (1, length), the text with and
    without its segments, both after the first `prefix` tokens, which the score knows; `of_token` of the segments is
    counted from there too. `question` says in words what is explained.
    """

    model: Any
    tokens: Tokens
    segments: Segments
    score: torch.nn.Module
    ids: torch.Tensor
    replaced: torch.Tensor
    prefix: int
    question: str
    replacement: str


def task(
    model: Any,
    tokenizer: Any,
    prompt: str | Messages,
    target: str | int | None = None,
    *,
    against: str | int | None = None,
    generate: int = 0,
    similar_to: str | None = None,
    score: str | None = None,
    by: Units = "word",
    replacement: str | int | None = None,
    explain_continuation: bool = False,
    share_prefix: bool = True,
) -> Task:
    """See `torus.explain.text.run.explain_text`."""
    tokenizer = as_tokenizer(tokenizer)
    prompt_tokens = read(tokenizer, prompt) if isinstance(prompt, str) else read_chat(tokenizer, prompt)
    substitute = _substitute(tokenizer, replacement)
    if is_causal(model):
        if similar_to is not None:
            raise ValueError("`similar_to` is for encoders; a language model's target is a text or a token")
        tokens, rivals, question = _continuation(
            model, tokenizer, prompt_tokens, target, against, generate, explain_continuation
        )
        return _causal(model, tokenizer, tokens, rivals, question, score or "log_prob", by, substitute, share_prefix)
    if generate:
        raise ValueError("this model does not generate text; its target is a class, or `similar_to` a text")
    return _encoder(model, tokenizer, prompt_tokens, target, against, similar_to, score or "logit", by, substitute)


def is_causal(model: Any) -> bool:
    """Whether the model continues texts. Raises ValueError for encoder-decoder models."""
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise ValueError(
            "models of an encoder and a decoder are not explained from text; use `explain` with a function"
        )
    can_generate = getattr(model, "can_generate", None)
    return bool(can_generate and can_generate())


def _continuation(
    model: Any,
    tokenizer: Any,
    prompt: Tokens,
    target: str | int | None,
    against: str | int | None,
    generate: int,
    free: bool,
) -> tuple[Tokens, list[int] | None, str]:
    """The prompt with the tokens whose score is explained, the tokens they are compared with, and the question."""
    if target is None or generate:
        if target is not None:
            raise ValueError("give a target, or let the model generate one, not both")
        target_ids: Sequence[int] | str = _generated(model, tokenizer, prompt, max(1, generate))
    else:
        target_ids = [target] if isinstance(target, int) else target
    tokens = continued(prompt, tokenizer, target_ids, free=free)
    shown = tokens.text[len(prompt.text) :]
    if against is None:
        return tokens, None, f"that {shown!r} follows"
    rival = [against] if isinstance(against, int) else list(tokenizer(against, add_special_tokens=False)["input_ids"])
    if len(rival) != 1 or tokens.generated != 1:
        raise ValueError(
            f"a contrast is between two tokens; {shown!r} has {tokens.generated} and {against!r} has {len(rival)}"
        )
    return tokens, rival, f"that {shown!r} follows rather than {tokenizer.decode(rival)!r}"


def _generated(model: Any, tokenizer: Any, prompt: Tokens, count: int) -> list[int]:
    """The most probable continuation, token by token."""
    ids = continued(prompt, tokenizer, [0]).ids[:-1]
    given = torch.tensor([ids]).to(_device(model))
    filling = getattr(tokenizer, "pad_token_id", None)
    found = model.generate(
        given, attention_mask=torch.ones_like(given), max_new_tokens=count, do_sample=False, pad_token_id=filling or 0
    )
    return [int(token) for token in found[0, len(ids) :].tolist()]


def _causal(
    model: Any,
    tokenizer: Any,
    tokens: Tokens,
    rivals: list[int] | None,
    question: str,
    kind: str,
    by: Units,
    substitute: int,
    share_prefix: bool,
) -> Task:
    """The last token is never an input: nothing that is explained comes after it."""
    count, generated = len(tokens.ids), tokens.generated
    found = segments(replace(tokens, free=(*tokens.free[:-1], False)), by)
    length = shareable(model, min(found.first_token, count - generated - 1)) if share_prefix else 0
    prefix = Prefix(model, torch.tensor([tokens.ids[:length]]).to(_device(model))) if length else None
    places = [place - length for place in range(count - generated - 1, count - 1)]
    score = scores.NextTokens(model, places, tokens.ids[-generated:], rivals, kind=kind, prefix=prefix)
    ids, replaced = _inputs(model, tokens, found, substitute, length, count - 1)
    return Task(
        model,
        tokens,
        replace(found, of_token=found.of_token[length : count - 1]),
        score,
        ids,
        replaced,
        length,
        f"{_words(kind)} {question}",
        tokenizer.decode([substitute]),
    )


def _encoder(
    model: Any,
    tokenizer: Any,
    tokens: Tokens,
    target: str | int | None,
    against: str | int | None,
    similar_to: str | None,
    kind: str,
    by: Units,
    substitute: int,
) -> Task:
    found = segments(tokens, by)
    ids, replaced = _inputs(model, tokens, found, substitute, 0, len(tokens.ids))
    mask = _mask(model, len(tokens.ids), ids.shape[1])
    if similar_to is not None:
        score: torch.nn.Module = scores.Similarity(model, mask, _vector(model, tokenizer, similar_to))
        question = f"similarity with {similar_to!r}"
    else:
        chosen = _most_likely(model, ids, mask) if target is None else _class(model, target)
        rival = None if against is None else _class(model, against)
        score = scores.Class(model, mask, chosen, rival, kind=kind)
        question = f"{_words(kind)} of {_label(model, chosen)}"
        question += "" if rival is None else f" rather than {_label(model, rival)}"
    name = tokenizer.decode([substitute])
    return Task(model, tokens, found, score, ids, replaced, 0, question, name)


def _inputs(
    model: Any, tokens: Tokens, found: Segments, substitute: int, first: int, last: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The ids from `first` to `last`, and the same without the segments."""
    ids = tokens.ids[first:last]
    without = [token if index < 0 else substitute for token, index in zip(ids, found.of_token[first:last])]
    return _filled(model, ids, first, substitute), _filled(model, without, first, substitute)


def _filled(model: Any, ids: Sequence[int], first: int, filling: int) -> torch.Tensor:
    """One row of one of a few lengths, (1, length). Raises ValueError for more than the model takes."""
    most = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    if most and first + len(ids) > most:
        raise ValueError(f"the text has {first + len(ids)} tokens, and the model takes {most}")
    length = min(rounded(len(ids)), most - first) if most else rounded(len(ids))
    return padded(ids, length, filling).to(_device(model))


def _mask(model: Any, count: int, length: int) -> torch.Tensor:
    return padded([1] * count, length, 0).to(_device(model))


def _vector(model: Any, tokenizer: Any, text: str) -> torch.Tensor:
    tokens = read(tokenizer, text)
    ids = _filled(model, tokens.ids, 0, 0)
    with torch.no_grad():
        return scores.embedding(model, ids, _mask(model, len(tokens.ids), ids.shape[1]))


def _most_likely(model: Any, ids: torch.Tensor, mask: torch.Tensor) -> int:
    with torch.no_grad():
        output = model(input_ids=ids, attention_mask=mask)
    logits = getattr(output, "logits", None)
    if logits is None:
        raise ValueError("the model has no classes: give `similar_to`, a text that the embedding is compared with")
    return int(logits[0].argmax())


def _class(model: Any, target: str | int) -> int:
    """The index of a class, by itself or its label."""
    labels = _labels(model)
    if isinstance(target, int):
        if labels and target not in labels:
            raise ValueError(f"there is no class {target}; there are {', '.join(map(str, labels))}")
        return target
    for index, label in labels.items():
        if label == target or str(index) == target:
            return int(index)
    known = ", ".join(labels.values()) or "none with names"
    raise ValueError(f"there is no class {target!r}; there are {known}")


def _labels(model: Any) -> dict[int, str]:
    return dict(getattr(getattr(model, "config", None), "id2label", None) or {})


def _label(model: Any, index: int) -> str:
    labels = _labels(model)
    return f"class {index} ({labels[index]})" if index in labels else f"class {index}"


def _substitute(tokenizer: Any, replacement: str | int | None) -> int:
    """The token that takes the place of what is left out. Raises ValueError where there is none to choose."""
    if isinstance(replacement, int):
        return replacement
    if isinstance(replacement, str):
        ids = tokenizer(replacement, add_special_tokens=False)["input_ids"]
        if len(ids) != 1:
            raise ValueError(f"the replacement {replacement!r} has {len(ids)} tokens; it has to be one")
        return int(ids[0])
    for name in ("mask_token_id", "pad_token_id", "unk_token_id", "eos_token_id"):
        found = getattr(tokenizer, name, None)
        if found is not None:
            return int(found)
    raise ValueError("the tokenizer has no mask, padding or unknown token; give `replacement`, one token")


def _words(kind: str) -> str:
    return {"log_prob": "log-probability", "logit": "logit", "prob": "probability"}.get(kind, kind)


def _device(model: Any) -> torch.device:
    return next(model.parameters()).device
