"""Which ops a run tests, their inputs, and these on the device."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import torus  # noqa: F401  makes the device exist before PyTorch's device test bases are made
from tests.conformance.exclusions import reason

DEVICE = "tpu"
FULL = os.environ.get("TORUS_CONFORMANCE") == "full"
SAMPLE = ("add", "index_select", "nn.functional.layer_norm", "matmul", "sort")
"""The ops of an ordinary test run: one of each kind."""
SEED = 20240229
_MOST = int(os.environ.get("TORUS_CONFORMANCE_SAMPLES", "6" if FULL else "2"))


def chosen() -> list[Any]:
    """The entries of the database that this run is about."""
    return [op for op in op_db if (FULL or op.full_name in SAMPLE) and is_chosen(op.full_name)]


def is_chosen(name: str) -> bool:
    """Whether this run has been asked for an entry."""
    only = re.compile(os.environ.get("TORUS_CONFORMANCE_ONLY", ""))
    part, _, parts = os.environ.get("TORUS_CONFORMANCE_SHARD", "1/1").partition("/")
    return bool(only.search(name)) and zlib.crc32(name.encode()) % int(parts) == int(part) - 1


def skip_excluded(case: Any, op: Any, dtype: torch.dtype | None = None) -> None:
    """Skip a test that `exclusions` lists, with its reason."""
    test = case._testMethodName.split("_" + op.formatted_name)[0]
    why = reason(test, op.full_name, dtype)
    if why is not None:
        case.skipTest(why)


def samples(op: Any, dtype: torch.dtype, requires_grad: bool = False, most: int = _MOST) -> Iterator[Any]:
    """At most so many inputs, on the CPU, the same ones each time."""
    torch.manual_seed(SEED)
    found = list(op.sample_inputs("cpu", dtype, requires_grad=requires_grad))
    step = max(1, len(found) / most)
    yield from (found[int(i * step)] for i in range(min(most, len(found))))


def arguments(sample: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The input, the other arguments and the named ones of a sample, apart from the sample itself."""
    # Lists are copied, since ops may replace their items; a copy of a tensor would go through pickle's protocol.
    first = list(sample.input) if isinstance(sample.input, list) else sample.input
    return (first, tuple(sample.args), dict(sample.kwargs))


def on_device(tree: Any) -> Any:
    """The same arguments on the device: views of one storage stay views of one."""
    bases: dict[int, torch.Tensor] = {}

    def move(value: Any) -> Any:
        if value == "cpu" or value == torch.device("cpu"):
            return torch.device(DEVICE) if isinstance(value, torch.device) else DEVICE
        return _move(value, bases)

    return pytree.tree_map_only((torch.Tensor, str, torch.device), move, tree)


def _move(tensor: Any, bases: dict[int, torch.Tensor]) -> Any:
    if not isinstance(tensor, torch.Tensor):
        return tensor
    if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg() or tensor.device.type != "cpu":
        return tensor.detach().to(DEVICE).requires_grad_(tensor.requires_grad)
    storage = tensor.untyped_storage()
    base = bases.get(storage._cdata)
    if base is None:
        whole = torch.empty(0, dtype=tensor.dtype).set_(storage, 0, (storage.nbytes() // tensor.element_size(),))
        base = bases.setdefault(storage._cdata, whole.to(DEVICE))
    moved = base.view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    return moved.detach().requires_grad_(tensor.requires_grad)


def in_double(tree: Any) -> Any:
    """The same arguments in float64 or complex128, dtypes among them too."""

    def widen(value: Any) -> Any:
        dtype = value if isinstance(value, torch.dtype) else value.dtype
        if not (dtype.is_floating_point or dtype.is_complex):
            return value
        wide = torch.complex128 if dtype.is_complex else torch.float64
        return wide if isinstance(value, torch.dtype) else value.detach().to(wide)

    return pytree.tree_map_only((torch.Tensor, torch.dtype), widen, tree)


def on_cpu(tree: Any) -> Any:
    """Results on the CPU, for comparisons; CPU results are kept apart from their inputs."""
    return pytree.tree_map_only(torch.Tensor, lambda t: t.detach().cpu(), tree)


def outcome(call: Callable[[], Any]) -> Exception | None:
    """What a call raises; device work that it began is waited for."""
    try:
        call()
        torch.tpu.synchronize()
    except Exception as error:
        return error
    return None


def tensors(tree: Any) -> Iterable[torch.Tensor]:
    """All tensors of a tree, in order."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
