"""Products take conjugated views without resolving them first: BLAS can, so PyTorch hands them on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

OPS: dict[str, Callable[..., torch.Tensor]] = {
    "mm": lambda a, b: a.mH @ b,
    "mm, right": lambda a, b: a @ b.mH,
    "addmm": lambda a, b: torch.addmm(a.conj(), a.mH, b.conj()),
    "bmm": lambda a, b: torch.bmm(a[None].conj(), b[None]),
    "baddbmm": lambda a, b: torch.baddbmm(b[None], a[None].mH, b[None]),
    "dot": lambda a, b: torch.dot(a[0].conj(), b[0]),
    "vdot": lambda a, b: torch.vdot(a[0].conj(), b[0]),
    "mv": lambda a, b: torch.mv(a.mH, b[0].conj()),
    "solve_triangular": lambda a, b: torch.linalg.solve_triangular(
        (a + 3 * torch.eye(3, device=a.device)).mH, b, upper=True
    ),
    "negated": lambda a, b: torch.mm(a.conj().imag, b.real),
}


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("compiled", [False, True])
def test_products_of_conjugated_views(device: str, name: str, compiled: bool) -> None:
    torch.manual_seed(0)
    a, b = (torch.randn(3, 3, dtype=torch.complex128) for _ in range(2))
    op: Any = torch.compile(OPS[name], backend="tpu", options={"fallback": False}) if compiled else OPS[name]
    torch.testing.assert_close(op(a.to(device), b.to(device)).cpu(), OPS[name](a, b), rtol=1e-12, atol=1e-12)


def test_a_compiled_function_of_a_conjugated_view(device: str) -> None:
    x = torch.randn(3, 2, dtype=torch.complex64)
    double = torch.compile(lambda v: v * 2, backend="tpu", options={"fallback": False})
    torch.testing.assert_close(double(x.to(device).conj()).cpu().resolve_conj(), (x.conj() * 2).resolve_conj())
