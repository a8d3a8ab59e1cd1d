"""Pieces of HTML. Text becomes HTML in `escape` alone, and numbers become text here."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape as _escape

# What neither HTML nor XML can hold: control characters, halves of a pair, and two that stand for nothing.
_UNWRITABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def escape(text: str) -> str:
    """Text as HTML or XML shows it."""
    return _escape(printable(text))


def printable(text: str) -> str:
    """Text with the sign for unknown characters in the place of those that cannot be written."""
    return _UNWRITABLE.sub("\ufffd", text)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    """A table from cells that are HTML already; the first of each row is its heading."""
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>' + "".join(f"<td>{cell}</td>" for cell in row[1:]) + "</tr>" for row in rows
    )
    parts = f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll {kind}" tabindex="0">{parts}</div>'


def number(value: float, signed: bool = True) -> str:
    """Three digits, with a sign: ``+0.0312``, ``-1.25e-06``."""
    if not math.isfinite(value):
        return str(value)
    return f"{value:{'+' if signed else ''}.3g}"


def summary(title: str, body: str, opened: bool = False) -> str:
    """A part that the reader opens; both are HTML."""
    return f"<details{' open' if opened else ''}><summary>{title}</summary>{body}</details>"
