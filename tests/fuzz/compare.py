"""What must agree between the two sides: metadata, sharing, autograd state and the bytes of every storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Names = dict[str, Any]

_METADATA: dict[str, Callable[[torch.Tensor], Any]] = {
    "dtype": lambda t: t.dtype,
    "size": lambda t: tuple(t.shape),
    "stride": lambda t: _significant_strides(t),
    "storage_offset": lambda t: t.storage_offset() if t.numel() else 0,
    "_version": lambda t: t._version,
    "_is_view": lambda t: t._is_view(),
    "is_contiguous": lambda t: t.is_contiguous(),
    "requires_grad": lambda t: t.requires_grad,
    "is_leaf": lambda t: t.is_leaf,
    "grad_fn": lambda t: type(t.grad_fn).__name__,
    "output_nr": lambda t: t.output_nr,
    "retains_grad": lambda t: t.retains_grad,
    "conj and neg bits": lambda t: (t.is_conj(), t.is_neg()),
    "storage bytes": lambda t: t.untyped_storage().nbytes(),
    "address in storage": lambda t: t.data_ptr() - t.untyped_storage().data_ptr() if t.numel() else 0,
}


def _significant_strides(tensor: torch.Tensor) -> list[int]:
    """Without those that lead nowhere (of size 1, of empty tensors): PyTorch's own kernels disagree on them."""
    return [] if tensor.numel() == 0 else [stride for size, stride in zip(tensor.shape, tensor.stride()) if size != 1]


def difference(cpu: Names, device: Names, values: bool = True, sized: bool = False) -> tuple[str, str] | None:
    """The first aspect in which the variables differ and what each side has; None when all agree.

    Without `values`, nothing of the device is read, and so nothing that is recorded has to run. `sized`: there are
    results whose size is a value (``x[mask]``), which are the front of a larger storage on the device.
    """
    tensors: list[tuple[str, torch.Tensor, torch.Tensor]] = []
    for name, expected in cpu.items():
        if name in ("torch", "device") or name.startswith("__"):
            continue
        if name not in device:
            return "names", f"{name} exists on the cpu only"
        actual = device[name]
        if isinstance(expected, torch.Tensor) and isinstance(actual, torch.Tensor):
            tensors.append((name, expected, actual))
        elif not _equal_objects(expected, actual):
            return "result", f"{name}\ncpu: {expected!r}\ndevice: {actual!r}"
    tensors += [(f"{n}.grad", e.grad, a.grad) for n, e, a in tensors if _has_grad(e) and _has_grad(a)]
    for name, expected, actual in tensors:
        found = _tensor_difference(expected, actual, sized)
        if found is not None:
            return found[0], f"{name}: {found[1]}"
    return _sharing_difference(tensors) or (_storage_difference(tensors) if values else None)


def _get(read: Callable[[torch.Tensor], Any], tensor: torch.Tensor) -> Any:
    """An attribute; for a view that an in-place operation has made unusable, the type of the error."""
    try:
        return read(tensor)
    except RuntimeError as error:
        return type(error)


def _grad(tensor: torch.Tensor) -> torch.Tensor | None:
    return tensor.grad if tensor.is_leaf else None


def _has_grad(tensor: torch.Tensor) -> bool:
    return isinstance(_get(_grad, tensor), torch.Tensor)


def _equal_objects(expected: Any, actual: Any) -> bool:
    if isinstance(expected, (list, tuple)):
        return (
            type(expected) is type(actual)
            and len(expected) == len(actual)
            and all(_equal_objects(e, a) for e, a in zip(expected, actual))
        )
    return type(expected) is type(actual) and (expected == actual or (expected != expected and actual != actual))


def _metadata(tensor: torch.Tensor) -> list[Any]:
    try:
        return [read(tensor) for read in _METADATA.values()]
    except RuntimeError:
        return [_get(read, tensor) for read in _METADATA.values()]


def _tensor_difference(expected: torch.Tensor, actual: torch.Tensor, sized: bool) -> tuple[str, str] | None:
    for aspect, e, a in zip(_METADATA, _metadata(expected), _metadata(actual)):
        if e != a and not (sized and aspect == "storage bytes" and a > e):
            return aspect, f"cpu {e}, device {a}"
    has_grad = [_has_grad(t) for t in (expected, actual)]
    if has_grad[0] != has_grad[1]:
        return "grad", f"cpu {has_grad[0]}, device {has_grad[1]}"
    return None


def _groups(keys: list[int]) -> list[int]:
    """For each entry the place of the first one like it."""
    first: dict[int, int] = {}
    return [first.setdefault(key, place) for place, key in enumerate(keys)]


def _sharing_difference(tensors: list[tuple[str, torch.Tensor, torch.Tensor]]) -> tuple[str, str] | None:
    for aspect, key in (("identity", id), ("sharing", _storage_key)):
        expected, actual = (_groups([key(row[side]) for row in tensors]) for side in (1, 2))
        for place, (e, a) in enumerate(zip(expected, actual)):
            if e != a:
                return (
                    aspect,
                    f"{tensors[place][0]}: the same as {tensors[e][0]} on the cpu, as {tensors[a][0]} on the device",
                )
    return None


def _storage_key(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _storage_difference(tensors: list[tuple[str, torch.Tensor, torch.Tensor]]) -> tuple[str, str] | None:
    seen: set[int] = set()
    for name, expected, actual in tensors:
        key = _storage_key(expected)
        if key in seen or expected.untyped_storage().nbytes() == 0:
            continue
        seen.add(key)
        left = _bytes(expected)
        right = _bytes(actual).cpu()[: left.numel()]
        if not torch.equal(left, right) and not _close(left, right, expected.dtype):
            return (
                "values",
                f"storage of {name}\ncpu: {_shown(left, expected.dtype)}\ndevice: {_shown(right, expected.dtype)}",
            )
    return None


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def _shown(raw: torch.Tensor, dtype: torch.dtype) -> list[Any]:
    size = dtype.itemsize
    return raw[: raw.numel() // size * size].view(dtype).tolist()


def _close(left: torch.Tensor, right: torch.Tensor, dtype: torch.dtype) -> bool:
    """Equal but for NaN payloads, zero for a subnormal (XLA:CPU flushes them) and the last bits of a rounding."""
    if not (dtype.is_floating_point or dtype.is_complex) or left.numel() % dtype.itemsize:
        return False
    left, right = left.view(dtype), right.view(dtype)
    if dtype.is_complex:
        left, right = torch.view_as_real(left), torch.view_as_real(right)
    info = torch.finfo(left.dtype)
    left, right = (torch.where(x.abs() < info.tiny, 0.0, x).double() for x in (left, right))
    return torch.allclose(left, right, rtol=4 * info.eps, atol=0.0, equal_nan=True)
