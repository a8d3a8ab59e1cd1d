"""Statements that make views and other tensors that share storage."""

from __future__ import annotations

import torch

from tests.fuzz.choose import VIEWS, Chooser, statement

REINTERPRETED = {
    torch.float32: [torch.int32, torch.uint8, torch.int64],
    torch.float64: [torch.int64, torch.float32, torch.uint8],
    torch.int64: [torch.int32, torch.float64, torch.uint8, torch.bfloat16],
    torch.bfloat16: [torch.int16, torch.float16, torch.uint8, torch.float32],
    torch.bool: [torch.uint8, torch.int8, torch.int16],
    torch.complex64: [torch.float32, torch.int64, torch.float64],
}


def _with_dims(c: Chooser, least: int) -> tuple[str, torch.Tensor] | None:
    return c.tensor(lambda t: t.dim() >= least)


@statement(VIEWS, 2)
def transpose(c: Chooser) -> str | None:
    if (found := _with_dims(c, 2)) is None:
        return None
    x, t = found
    i, j = c.dim(t), c.dim(t)
    form = c.few(["{x}.transpose({i}, {j})", "{x}.swapaxes({i}, {j})", "{x}.movedim({i}, {j})"])
    return f"{c.new()} = " + form.format(x=x, i=i, j=j)


@statement(VIEWS, 2)
def matrix_transpose(c: Chooser) -> str | None:
    found = c.tensor(lambda t: t.dim() <= 2)
    return None if found is None else f"{c.new()} = {found[0]}" + c.few([".t()", ".T", ".mT", ".adjoint()"])


@statement(VIEWS)
def permute(c: Chooser) -> str | None:
    if (found := _with_dims(c, 2)) is None:
        return None
    x, t = found
    order = list(range(t.dim()))
    c.rng.shuffle(order)
    return f"{c.new()} = {x}.permute({', '.join(map(str, order))})"


@statement(VIEWS, 2)
def select(c: Chooser) -> str | None:
    if (found := _with_dims(c, 1)) is None:
        return None
    x, t = found
    dim = c.dim(t)
    index = c.few([0, 1, -1, 2, 5])
    if dim == 0 and c.chance(0.5):
        return f"{c.new()} = {x}[{index}]"
    return f"{c.new()} = {x}.select({dim}, {index})"


@statement(VIEWS, 3)
def slice_(c: Chooser) -> str | None:
    if (found := _with_dims(c, 1)) is None:
        return None
    x, t = found
    part = c.few(["::2", "1:", "1::2", ":-1", ":2", "-2:", "::3", "2:1", "None", "..."])
    before = ", ".join([":"] * c.rng.randrange(t.dim()))
    return f"{c.new()} = {x}[{before + ', ' if before else ''}{part}]"


@statement(VIEWS)
def narrow(c: Chooser) -> str | None:
    if (found := _with_dims(c, 1)) is None:
        return None
    x, t = found
    return f"{c.new()} = {x}.narrow({c.dim(t)}, {c.few([0, 1, 2])}, {c.few([2, 1, 3, 0])})"


@statement(VIEWS, 2)
def reshape(c: Chooser) -> str | None:
    if (found := c.tensor()) is None:
        return None
    x, t = found
    n = t.numel()
    shapes = [
        "-1",
        f"{n}, 1",
        *(f"{k}, {n // k}" for k in (2, 3, 4) if n and n % k == 0),
        "2, -1",
        f"1, {n}",
        "2, 2, -1",
    ]
    return f"{c.new()} = {x}.{c.few(['view', 'reshape'])}({c.few(shapes)})"


@statement(VIEWS)
def flatten(c: Chooser) -> str | None:
    if (found := c.tensor()) is None:
        return None
    forms = ["flatten()", "ravel()", "flatten(0, 1)", "unflatten(0, (2, -1))", "unflatten(-1, (-1, 2))", "contiguous()"]
    return f"{c.new()} = {found[0]}.{c.any(forms)}"


@statement(VIEWS)
def expand(c: Chooser) -> str | None:
    if (found := c.tensor(lambda t: t.dim() <= 3)) is None:
        return None
    x, t = found
    sizes = [2 if s == 1 and c.chance(0.7) else s for s in t.shape]
    if c.chance(0.5):
        sizes = [2, *([-1] * t.dim())] if c.chance(0.5) else [2, *sizes]
    return f"{c.new()} = {x}.expand({tuple(sizes)})"


@statement(VIEWS)
def squeeze(c: Chooser) -> str | None:
    if (found := c.tensor(lambda t: t.dim() <= 4)) is None:
        return None
    x, t = found
    if c.chance(0.5):
        return f"{c.new()} = {x}.unsqueeze({c.any([0, 1, -1])})"
    return f"{c.new()} = {x}.squeeze({c.few(['', str(c.dim(t)), '(0, 1)'])})"


@statement(VIEWS)
def diagonal(c: Chooser) -> str | None:
    if (found := _with_dims(c, 2)) is None:
        return None
    return f"{c.new()} = {found[0]}.diagonal({c.few(['', '1', '-1', '0, -1, -2', '0, 1, 0'])})"


@statement(VIEWS)
def unfold(c: Chooser) -> str | None:
    if (found := _with_dims(c, 1)) is None:
        return None
    x, t = found
    return f"{c.new()} = {x}.unfold({c.dim(t)}, {c.few([2, 3, 1])}, {c.few([2, 1, 3])})"


@statement(VIEWS)
def as_strided(c: Chooser) -> str | None:
    if (found := c.tensor()) is None:
        return None
    pattern = c.few(
        [
            "(2, 2), (2, 1)",
            "(2, 2), (1, 2), 1",
            "(3,), (2,), 0",
            "(2, 3), (3, 1), 2",
            "(2, 2), (0, 1)",
            "(), ()",
            "(2, 2), (5, 2)",
        ]
    )
    return f"{c.new()} = {found[0]}.as_strided({pattern})"


CHAINS = {
    1: ["[1:][::2]", "[::2][1:]", "[None, ::2].expand(2, -1)", ".unfold(0, 2, 1)[1:]", ".unfold(0, 2, 2).t()"],
    2: [
        ".t()[::2]",
        "[1:, 1:].t()",
        "[:, ::2].t()",
        ".t()[1:, ::2]",
        "[:, 1:3]",
        ".t()[1]",
        ".unfold(1, 2, 1)[1:]",
        "[::2].t()[:, None]",
        ".expand(2, -1, -1).permute(2, 0, 1)[1:]",
        "[1:].diagonal()",
    ],
    3: [
        ".permute(2, 0, 1)[:, 1:]",
        "[:, ::2].transpose(0, 2)",
        ".permute(1, 2, 0)[::2]",
        "[1].t()[:, 1:]",
        "[..., 1].t()",
        "[:, 1:, ::2].permute(1, 0, 2)",
        ".transpose(1, 2)[:, 1:, ::2]",
    ],
}


@statement(VIEWS, 6)
def chain(c: Chooser) -> str | None:
    """Steps, gaps and permutations together: what a program must untangle."""
    if (found := c.tensor(lambda t: t.dim() in CHAINS)) is None:
        return None
    return f"{c.new()} = {found[0]}{c.any(CHAINS[found[1].dim()])}"


@statement(VIEWS)
def parts(c: Chooser) -> str | None:
    if (found := _with_dims(c, 1)) is None:
        return None
    x, t = found
    dim = c.dim(t)
    form = c.any(
        [
            f"chunk(2, {dim})[-1]",
            f"split(2, {dim})[0]",
            f"unbind({dim})[0]",
            f"tensor_split(2, {dim})[1]",
            f"split((1, {t.shape[dim] - 1}), {dim})[1]",
        ]
    )
    return f"{c.new()} = {x}.{form}"


@statement(VIEWS)
def view_as_dtype(c: Chooser) -> str | None:
    if (found := c.tensor(lambda t: not t.requires_grad and t.dtype in REINTERPRETED)) is None:
        return None
    x, t = found
    c.reinterpreted.add(t.untyped_storage()._cdata)
    return f"{c.new()} = {x}.view({c.few(REINTERPRETED[t.dtype])})"


@statement(VIEWS, 0.5)
def view_as_parts(c: Chooser) -> str | None:
    found = c.tensor(lambda t: t.dtype in (torch.float32, torch.float64, torch.complex64) and c.calculable(t))
    if found is None:
        return None
    x, t = found
    if t.is_complex():
        form = c.any(["torch.view_as_real({x})", "{x}.real", "{x}.imag", "{x}.conj()", "{x}.conj().imag"])
    else:
        form = c.few(["torch.view_as_complex({x})", "{x}.real", "torch._neg_view({x})"])
    return f"{c.new()} = " + form.format(x=x)


@statement(VIEWS)
def alias(c: Chooser) -> str | None:
    if (found := c.tensor()) is None:
        return None
    form = c.any(["{x}.detach()", "{x}.data", "{x}[...]", "{x}.view_as({x})", "torch.ops.aten.alias({x})", "{x}"])
    return f"{c.new()} = " + form.format(x=found[0])
