"""In which dtypes each op is compared with the CPU: those that PyTorch's operator database has for the CPU."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Iterator
from typing import Any

import torch

_GROUPS = {
    "floating": (torch.float64, torch.float32, torch.float16, torch.bfloat16),
    "complex": (torch.complex64, torch.complex128),
    "integral": (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8),
    "wide unsigned": (torch.uint16, torch.uint32, torch.uint64),
    "bool": (torch.bool,),
}
_COMMON = ("floating", "complex", "integral", "bool")


def by_op() -> dict[str, str]:
    """ATen's name of an op (without overload) -> its dtypes as people read them. Takes seconds: PyTorch makes the
    database when it is imported.
    """
    found: dict[str, set[torch.dtype]] = collections.defaultdict(set)
    for entry in _database():
        for name in _names(entry):
            found[name] |= set(entry.dtypes)
        if entry.aten_backward_name:
            found[entry.aten_backward_name] |= set(entry.backward_dtypes)
    return {name: describe(dtypes - {torch.complex32}) for name, dtypes in found.items()}


def describe(dtypes: Iterable[torch.dtype]) -> str:
    """Groups where all of one are there, single names otherwise; ``all`` is all but the rare ones."""
    rest = set(dtypes)
    words = [group for group, members in _GROUPS.items() if rest.issuperset(members)]
    for group in words:
        rest -= set(_GROUPS[group])
    if set(_COMMON) <= set(words):
        words = ["all", *(word for word in words if word not in _COMMON)]
    return ", ".join([*words, *sorted(str(dtype).removeprefix("torch.") for dtype in rest)])


def _database() -> Iterator[Any]:
    from torch.testing._internal import common_methods_invocations as database

    yield from database.op_db
    for kind in ("unary", "binary", "pointwise", "reduce", "other"):
        yield from getattr(database, f"foreach_{kind}_op_db")


def _names(entry: Any) -> Iterator[str]:
    """What ATen calls the op of an entry, and its other names."""
    for name in (entry.name, entry.aten_name, *(alias.name for alias in entry.aliases)):
        name = re.sub(r"^(torch\.ops\.aten\.|torch\.|nn\.functional\.)|\.default$", "", name)
        yield name.replace(".", "_")
