"""Statements that compute new tensors from views, bring values to the host, and go through autograd."""

from __future__ import annotations

import torch

from tests.fuzz.choose import GRADIENTS, READS, Chooser, statement


def _number(c: Chooser) -> tuple[str, torch.Tensor] | None:
    return c.tensor(c.calculable)


@statement(READS, 2)
def elementwise(c: Chooser) -> str | None:
    if (found := _number(c)) is None:
        return None
    x, t = found
    k = c.number(t.dtype)
    form = c.few(
        [
            "{x} + {k}",
            "{x} * {k}",
            "-{x}",
            "{x} - {k}",
            "{x} == {k}",
            "{x}.abs()",
            "torch.where({x} == 1, {x}, {k})",
            "{x}.clamp(-2, 2)",
        ]
    )
    return f"{c.new()} = " + form.format(x=x, k=k)


@statement(READS, 2)
def binary(c: Chooser) -> str | None:
    if (left := _number(c)) is None or (right := _number(c)) is None:
        return None
    form = c.few(
        [
            "{x} + {y}",
            "{x} * {y}",
            "{x} - {y}",
            "torch.cat(({x}, {y}))",
            "torch.maximum({x}, {y})",
            "torch.stack(({x}, {y}))",
        ]
    )
    return f"{c.new()} = " + form.format(x=left[0], y=right[0])


@statement(READS, 2)
def moved(c: Chooser) -> str | None:
    if (found := c.tensor()) is None:
        return None
    form = c.few(
        [
            "clone()",
            "contiguous()",
            "flip(0)",
            "clone(memory_format=torch.contiguous_format)",
            "repeat(2, 1)",
            "roll(1, 0)",
        ]
    )
    return f"{c.new()} = {found[0]}.{form}"


@statement(READS)
def indexed(c: Chooser) -> str | None:
    if (found := c.tensor(lambda t: t.dim() > 0)) is None:
        return None
    x, t = found
    form = c.few(
        [
            "{x}[torch.tensor([1, 0]).to(device)]",
            "{x}[..., torch.tensor([0, -1]).to(device)]",
            "{x}.index_select({d}, torch.tensor([0, 0]).to(device))",
            "{x}[{x} == 1]",
            "{x}.gather({d}, torch.zeros({x}.shape, dtype=torch.long).to(device))",
            "{x}.take(torch.tensor([0, 1]).to(device))",
        ]
    )
    return f"{c.new()} = " + form.format(x=x, d=c.dim(t))


@statement(READS)
def converted(c: Chooser) -> str | None:
    if (found := _number(c)) is None:
        return None
    form = c.few(
        ["float()", "to(torch.int64)", "bool()", "to(torch.bfloat16)", "double()", "to(torch.float32, copy=True)"]
    )
    return f"{c.new()} = {found[0]}.{form}"


@statement(READS)
def reduced(c: Chooser) -> str | None:
    if (found := _number(c)) is None:
        return None
    x, t = found
    return f"{c.new()} = {x}." + c.few(
        ["sum()", f"sum({c.dim(t)})", f"amax({c.dim(t)})", f"sum({c.dim(t)}, keepdim=True)"]
    )


@statement(READS, 0.7)
def to_host(c: Chooser) -> str | None:
    if (found := c.tensor(lambda t: t.numel() > 0)) is None:
        return None
    form = c.any(
        [
            "cpu().tolist()",
            "flatten()[0].item()",
            "tolist()",
            "detach().cpu().clone().numpy().tolist()",
            "ne(0).any().item()",
        ]
    )
    return f"result = {found[0]}.{form}"


def _differentiable(t: torch.Tensor) -> bool:
    return t.requires_grad


@statement(GRADIENTS, 3)
def backward(c: Chooser) -> str | None:
    if (found := c.tensor(lambda t: t.requires_grad and (not t.is_leaf or c.chance(0.2)))) is None:
        return None
    x = found[0]
    form = c.few(
        [
            "{x}.sum().backward()",
            "{x}.backward(torch.ones_like({x}))",
            "({x} * {x}).sum().backward()",
            "{x}.sum().backward(retain_graph=True)",
            "{x}.backward({x}.detach())",
        ]
    )
    return form.format(x=x)


@statement(GRADIENTS, 2)
def grad(c: Chooser) -> str | None:
    y, x = c.tensor(_differentiable), c.tensor(_differentiable)
    if y is None or x is None:
        return None
    name = c.new()
    form = c.few(
        [
            "torch.autograd.grad({y}.sum(), {x}, allow_unused=True)[0]",
            "torch.autograd.grad(({y} * {y}).sum(), {x}, create_graph=True)[0]",
            "torch.autograd.grad({y}.sum(), {x})[0]",
        ]
    )
    return f"{name} = " + form.format(y=y[0], x=x[0])


@statement(GRADIENTS, 2)
def require(c: Chooser) -> str | None:
    found = c.tensor(lambda t: not t.requires_grad)
    return None if found is None else f"{found[0]}.requires_grad_()"


@statement(GRADIENTS)
def gradient_state(c: Chooser) -> str | None:
    if (found := c.tensor(_differentiable)) is None:
        return None
    x, t = found
    if t.is_leaf and t.grad is not None:
        form = c.any(
            ["{v} = {x}.grad", "{x}.grad = None", "{x}.grad.zero_()", "{x}.grad.mul_(2)", "{x}.grad = {x}.grad[...]"]
        )
    else:
        form = c.any(["{x}.retain_grad()", "{x}.register_hook(lambda g: g * 2)", "{v} = {x}.detach().requires_grad_()"])
    return form.format(x=x, v=c.new())
