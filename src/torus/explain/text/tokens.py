"""A text as tokens that know where in it they are, and which of them an explanation may change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torus.explain.text.spans import Span

Messages = Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Block:
    """A part of the text that a reader sees as one, such as a message; `label` says what it is, if anything."""

    label: str
    start: int
    end: int


@dataclass(frozen=True)
class Tokens:
    """`text` as `ids`; each token stands for ``text[start:end]`` of its span, the empty text for special tokens.

    `free` tokens may be changed: those of the words that are explained, and no special tokens or a chat's template.
    The last `generated` tokens are the continuation, and `blocks` what the reader is shown.
    """

    text: str
    ids: tuple[int, ...]
    spans: tuple[Span, ...]
    free: tuple[bool, ...]
    blocks: tuple[Block, ...]
    generated: int = 0


def as_tokenizer(tokenizer: Any) -> Any:
    """A tokenizer of transformers: itself, one of `tokenizers`, or that of a local directory.

    Raises ValueError for one that cannot say where its tokens are.
    """
    if isinstance(tokenizer, str | Path):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(Path(tokenizer), local_files_only=True)
    elif not callable(tokenizer):
        from transformers import PreTrainedTokenizerFast

        tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    if not getattr(tokenizer, "is_fast", True):
        raise ValueError(
            f"{type(tokenizer).__name__} does not say where in the text its tokens are; load its fast form "
            "(a tokenizer.json), or give a tokenizer of the package tokenizers"
        )
    return tokenizer


def read(tokenizer: Any, text: str) -> Tokens:
    """The tokens of a text, with the special tokens that the model expects around it."""
    ids, spans, special = _encode(tokenizer, text, special=True)
    free = tuple(not skip and end > start for skip, (start, end) in zip(special, spans))
    return Tokens(text, ids, spans, free, (Block("", 0, len(text)),))


def read_chat(tokenizer: Any, messages: Messages, *, free: Sequence[str] = ("system", "user", "assistant")) -> Tokens:
    """The tokens of a chat, written by the tokenizer's own template, up to where the assistant would answer.

    free: the roles whose messages are explained; the template is none of them.

    Raises ValueError where the tokenizer has no chat template.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise ValueError("the tokenizer has no chat template; give the prompt as one text")
    text = tokenizer.apply_chat_template(
        [dict(message) for message in messages], tokenize=False, add_generation_prompt=True
    )
    blocks = _messages(text, messages)
    ids, spans, _ = _encode(tokenizer, text, special=False)
    shown = [block for block in blocks if block.label in free]
    return Tokens(text, ids, spans, tuple(_inside(span, shown) for span in spans), blocks)


def continued(tokens: Tokens, tokenizer: Any, continuation: str | Sequence[int], *, free: bool = False) -> Tokens:
    """The tokens of a prompt with those of what follows it, a text or ids. A closing special token of the prompt goes.

    free: whether what follows is explained too, each of its tokens by those before it.
    """
    prompt = tokens
    while prompt.spans and not prompt.free[-1] and prompt.spans[-1][0] == prompt.spans[-1][1] and len(prompt.ids) > 1:
        prompt = replace(prompt, ids=prompt.ids[:-1], spans=prompt.spans[:-1], free=prompt.free[:-1])
    if isinstance(continuation, str):
        ids, spans, _ = _encode(tokenizer, continuation, special=False)
    else:
        ids, spans, continuation = _decode(tokenizer, continuation)
    if not ids:
        raise ValueError("the continuation is empty: there is nothing to explain")
    start = len(tokens.text)
    return Tokens(
        text=tokens.text + continuation,
        ids=prompt.ids + ids,
        spans=prompt.spans + tuple((start + first, start + last) for first, last in spans),
        free=prompt.free + (free,) * len(ids),
        blocks=(*tokens.blocks, Block("continuation", start, start + len(continuation))),
        generated=len(ids),
    )


def _encode(tokenizer: Any, text: str, *, special: bool) -> tuple[tuple[int, ...], tuple[Span, ...], list[int]]:
    found = tokenizer(
        text, add_special_tokens=special, return_offsets_mapping=True, return_special_tokens_mask=True, verbose=False
    )
    spans = tuple((int(start), int(end)) for start, end in found["offset_mapping"])
    return tuple(found["input_ids"]), spans, list(found["special_tokens_mask"])


def _decode(tokenizer: Any, ids: Sequence[int]) -> tuple[tuple[int, ...], tuple[Span, ...], str]:
    """Where each of the ids is in the text of them all: a character goes to the token that completes it."""
    spans, text = [], ""
    for count in range(1, len(ids) + 1):
        longer = tokenizer.decode(list(ids[:count]), skip_special_tokens=False)
        if longer.endswith("\ufffd") and count < len(ids):  # part of a character
            spans.append((len(text), len(text)))
            continue
        spans.append((len(text), len(longer)))
        text = longer
    return tuple(ids), tuple(spans), text


def _messages(text: str, messages: Messages) -> tuple[Block, ...]:
    """Where the template put each message; it may have dropped spaces around it."""
    blocks, position = [], 0
    for message in messages:
        content = message["content"].strip()
        start = text.find(content, position) if content else -1
        if start < 0:
            continue  # templates may leave out a message, such as an earlier thought
        position = start + len(content)
        blocks.append(Block(message["role"], start, position))
    return tuple(blocks)


def _inside(span: Span, blocks: Sequence[Block]) -> bool:
    start, end = span
    return end > start and any(start < block.end and end > block.start for block in blocks)
