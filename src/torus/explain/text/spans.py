"""Where the words, sentences, lines and paragraphs of a text are: spans ``(start, end)`` of characters.

Nothing here knows a language. Words are told apart by spaces, and by the script where that uses none.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

Span = tuple[int, int]

Units = str | Sequence[Span]
"""A name of `UNITS`, "token", or spans of the text."""

# Scripts that are written without spaces: a character is taken for a word.
_SPACELESS = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
# End marks: Latin, Arabic, Armenian and Devanagari ones before a space, those of Chinese and Japanese anywhere.
_SENTENCE = re.compile(
    r"\S.*?(?:[.!?\u2026\u06d4\u061f\u0589\u0964\u0965]+[\"'\u201d\u2019\xbb)\]]*(?=\s)"
    r"|[\u3002\uff01\uff1f\uff61]+[\u300d\u300f\u201d\uff09]*|(?=\n\s*\n)|\Z)",
    re.DOTALL,
)


def words(text: str) -> list[Span]:
    """Runs of characters that are not spaces, with the punctuation at their ends apart."""
    return [span for run in re.finditer(r"\S+", text) for span in _parts(text, *run.span())]


def sentences(text: str) -> list[Span]:
    """Sentences by their end marks before a space (or without one, for the marks of Chinese and Japanese)."""
    return [match.span() for match in _SENTENCE.finditer(text)]


def lines(text: str) -> list[Span]:
    """Lines that are not blank, without the spaces around them."""
    return [match.span() for match in re.finditer(r"\S(?:[^\n]*\S)?", text)]


def paragraphs(text: str) -> list[Span]:
    """What blank lines divide."""
    return [match.span() for match in re.finditer(r"\S(?:.*?)(?=\s*\n\s*\n|\s*\Z)", text, re.DOTALL)]


UNITS: dict[str, Callable[[str], list[Span]]] = {
    "word": words,
    "sentence": sentences,
    "line": lines,
    "paragraph": paragraphs,
}


def _parts(text: str, start: int, end: int) -> list[Span]:
    """The words and the punctuation of one run without spaces."""
    found: list[Span] = []
    while start < end and _is_mark(text[start]):
        found.append((start, start + 1))
        start += 1
    last: list[Span] = []
    while end > start and _is_mark(text[end - 1]):
        last.append((end - 1, end))
        end -= 1
    cut = start
    for position in range(start, end):
        if position >= cut and _stands_alone(text[position]):
            if cut < position:
                found.append((cut, position))
            cut = _after_combining(text, position + 1, end)
            found.append((position, cut))
    if cut < end:
        found.append((cut, end))
    return [*found, *reversed(last)]


def _after_combining(text: str, position: int, end: int) -> int:
    """Vowel and tone signs stay with their letter."""
    while position < end and unicodedata.category(text[position]).startswith("M"):
        position += 1
    return position


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"


def _stands_alone(character: str) -> bool:
    return bool(_SPACELESS.match(character)) or ("\u3000" <= character <= "\uffef" and _is_mark(character))
