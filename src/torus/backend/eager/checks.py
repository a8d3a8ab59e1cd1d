"""What a failed check of a program raises."""

from __future__ import annotations

from typing import Any

import torch

from torus import runtime


class OutOfBounds(IndexError, RuntimeError):
    """An index out of range. PyTorch raises IndexError for it in some ops (index_select, embedding), RuntimeError in
    others (gather, scatter): code that catches either finds it here.
    """


_KINDS: dict[str, type[Exception]] = {
    "linalg": torch.linalg.LinAlgError,  # type: ignore[attr-defined]
    "value": RuntimeError,
}
"""How the message of a check begins whose failure is no index out of range, and what it is."""


def raise_failed_checks(messages: list[str], reports: list[Any]) -> None:
    """Raise for the first check that failed. Waits for the program."""
    for message, report in zip(messages, reports, strict=True):
        failed, value = runtime.read_pair(report)
        if failed:
            kind, _, text = message.partition(":")
            if kind in _KINDS:
                raise _KINDS[kind](text.format(value=value))
            raise OutOfBounds(message.format(value=value))
