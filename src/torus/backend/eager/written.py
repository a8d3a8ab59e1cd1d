"""How a recipe is written down: JSON and the compressed text of its program. No pickle, which would be code."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

import torch

from torus.backend.eager.build import Plan
from torus.backend.eager.request import Result
from torus.runtime.programs import Aval

_LENGTH = struct.Struct("<I")


def encode(plan: Plan, text: bytes, out_avals: Sequence[Aval]) -> bytes:
    """The bytes from which `decode` makes these again."""
    fields = vars(plan) | {"results": [_from_result(result) for result in plan.results]}
    head = json.dumps({"plan": fields, "out_avals": list(out_avals)}).encode()
    return _LENGTH.pack(len(head)) + head + text


def decode(data: bytes) -> tuple[Plan, bytes, list[Aval]]:
    """What was given to `encode`. Raises ValueError for other bytes."""
    try:
        (size,) = _LENGTH.unpack_from(data)
        start = _LENGTH.size + size
        head = json.loads(data[_LENGTH.size : start])
        fields = head["plan"]
        fields["results"] = [_to_result(written) for written in fields["results"]]
        fields["counts"] = [tuple(count) if isinstance(count, list) else count for count in fields["counts"]]
        return Plan(**fields), data[start:], [(tuple(shape), dtype) for shape, dtype in head["out_avals"]]
    except (struct.error, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"this is no recipe: {error!r}") from None


def _from_result(result: Result | None) -> list[Any] | None:
    if result is None:
        return None
    return [_name(field) if isinstance(field, torch.dtype) else field for field in result]


def _to_result(written: list[Any] | None) -> Result | None:
    if written is None:
        return None
    dtype, sizes, strides, layout_dtype, layout_shape, writes = written
    return Result(_dtype(dtype), tuple(sizes), tuple(strides), _dtype(layout_dtype), tuple(layout_shape), writes)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name)
    if not isinstance(found, torch.dtype):
        raise TypeError(f"torch.{name} is no dtype")
    return found
