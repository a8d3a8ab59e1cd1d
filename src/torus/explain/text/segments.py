"""Which tokens are explained as one: tokens, words, sentences, or spans that the user names."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from torus.explain.text.spans import UNITS, Span, Units
from torus.explain.text.tokens import Tokens


@dataclass(frozen=True)
class Segments:
    """Spans of the text, in order, and for each token the index of its own, -1 for tokens that stay as they are."""

    spans: tuple[Span, ...]
    of_token: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.spans)

    @property
    def first_token(self) -> int:
        """The first token that is in one."""
        return next(position for position, index in enumerate(self.of_token) if index >= 0)

    def sum(self, per_token: torch.Tensor) -> torch.Tensor:
        """What the tokens of each segment have together: (..., tokens) to (..., segments)."""
        index = torch.tensor(self.of_token, device=per_token.device)
        kept = per_token[..., : len(index)] * (index >= 0)
        result = per_token.new_zeros(*per_token.shape[:-1], len(self))
        return result.index_add(-1, index.clamp_min(0), kept)


def segments(tokens: Tokens, by: Units = "word") -> Segments:
    """Segments of the tokens that may be changed; a token goes to the one that its first letter is in.

    by: a name of `torus.explain.text.spans.UNITS`, "token", or spans of the text. Spans have to be in order and apart.

    Raises ValueError for other names and spans, and where no token is left.
    """
    spans = _token_spans(tokens) if by == "token" else _spans(tokens, by)
    of_token = [_segment_of(tokens.text, span, spans) if free else -1 for span, free in zip(tokens.spans, tokens.free)]
    if isinstance(by, str):
        of_token = _with_the_empty(of_token, tokens.free)
    used = sorted({index for index in of_token if index >= 0})
    if not used:
        raise ValueError(f"there is nothing to explain in {tokens.text[:60]!r}: it has no words, or none in the spans")
    number = {index: position for position, index in enumerate(used)} | {-1: -1}
    return Segments(tuple(spans[index] for index in used), tuple(number[index] for index in of_token))


def _spans(tokens: Tokens, by: Units) -> list[Span]:
    if not isinstance(by, str):
        return _checked(by, len(tokens.text))
    if by not in UNITS:
        raise ValueError(f"text has no {by!r}; there are token, {', '.join(UNITS)}, and spans (start, end)")
    return [
        (block.start + start, block.start + end)
        for block in tokens.blocks
        for start, end in UNITS[by](tokens.text[block.start : block.end])
    ]


def _checked(spans: Sequence[Span], length: int) -> list[Span]:
    last = 0
    for start, end in spans:
        if not last <= start < end <= length:
            raise ValueError(f"the span {(start, end)} is empty, overlaps one before it or leaves the text of {length}")
        last = end
    return list(spans)


def _token_spans(tokens: Tokens) -> list[Span]:
    """The spans of the tokens; tokens that are parts of one character share one."""
    found: list[Span] = []
    for span, free in zip(tokens.spans, tokens.free):
        if not free or span[0] == span[1]:
            continue
        if found and span[0] < found[-1][1]:
            found[-1] = (found[-1][0], max(span[1], found[-1][1]))
        else:
            found.append(span)
    return found


def _segment_of(text: str, span: Span, spans: Sequence[Span]) -> int:
    """The segment with the first character that is no space (or the first of all, for spaces alone); -1 for none."""
    start, end = span
    if start == end:
        return -1
    first = start + len(text[start:end]) - len(text[start:end].lstrip())
    position = first if first < end else start
    index = bisect_right(spans, position, key=lambda span: span[0]) - 1
    return index if index >= 0 and position < spans[index][1] else -1


def _with_the_empty(of_token: list[int], free: Sequence[bool]) -> list[int]:
    """Free tokens between segments (spaces, parts of a character) go with the one after them, or before at the end."""
    following, result = -1, list(of_token)
    for position in reversed(range(len(result))):
        if free[position] and result[position] < 0:
            result[position] = following
        following = result[position]
    before = -1
    for position, index in enumerate(result):
        if free[position] and index < 0:
            result[position] = before
        before = result[position]
    return result
