"""Statements that write: through views, with out=, to metadata, and to storages."""

from __future__ import annotations

import torch

from tests.fuzz.choose import WRITES, Chooser, overlaps_itself, places, statement, written_safely

Found = tuple[str, torch.Tensor]


def _target(c: Chooser) -> Found | None:
    """Something to write to; what overlaps itself only where PyTorch raises."""
    return c.tensor(lambda t: c.calculable(t) and (0 in t.stride() or not overlaps_itself(t)))


def _plain_target(c: Chooser) -> Found | None:
    """Something that does not overlap itself, for the writes that PyTorch allows although their order would show."""
    return c.tensor(lambda t: c.calculable(t) and not overlaps_itself(t))


def _guarded(c: Chooser, target: torch.Tensor, line: str) -> str:
    """Under no_grad, most of the time, where autograd would refuse."""
    if target.requires_grad and target.is_leaf and c.chance(0.8):
        return f"with torch.no_grad(): {line}"
    return line


def _source(c: Chooser, target: torch.Tensor) -> str | None:
    """A tensor that can be written to `target` with a defined result."""

    def fits(t: torch.Tensor) -> bool:
        if not c.calculable(t) or t.dim() > target.dim():
            return False
        trailing = target.shape[target.dim() - t.dim() :]
        return all(s in (1, n) for s, n in zip(t.shape, trailing)) and written_safely(target, t)

    found = c.tensor(fits)
    return None if found is None else found[0]


@statement(WRITES, 4)
def with_number(c: Chooser) -> str | None:
    if (found := _target(c)) is None:
        return None
    x, t = found
    k = c.number(t.dtype)
    form = c.few(
        [
            "add_({k})",
            "mul_({k})",
            "fill_({k})",
            "zero_()",
            "sub_({k})",
            "clamp_(-3, 3)",
            "neg_()",
            "clamp_(min={k})",
            "add_({k}, alpha=2)",
        ]
    )
    return _guarded(c, t, f"{x}." + form.format(k=k))


@statement(WRITES, 4)
def with_tensor(c: Chooser) -> str | None:
    if (found := _target(c)) is None or (y := _source(c, found[1])) is None:
        return None
    x, t = found
    form = c.few(
        ["{x}.copy_({y})", "{x}.add_({y})", "{x}.mul_({y})", "{x}[...] = {y}", "{x}.sub_({y}, alpha=2)", "{x} += {y}"]
    )
    source = c.names[y]
    if "[...]" in form and source.shape != t.shape and places(t) & places(source):
        return None  # the assignment expands the source first, and then PyTorch does not see the overlap
    return _guarded(c, t, form.format(x=x, y=y))


@statement(WRITES)
def moved(c: Chooser) -> str | None:
    if (found := c.tensor(lambda t: 0 in t.stride() or not overlaps_itself(t))) is None:
        return None
    x, t = found
    form = c.few(
        [
            "fill_(1)",
            "zero_()",
            "copy_({x}.clone())",
            "copy_({x}.flip(0))",
            "copy_({x}.detach())",
            "copy_(torch.ones({x}.shape))",
        ]
    )
    return _guarded(c, t, f"{x}." + form.format(x=x))


@statement(WRITES)
def repeated_fill(c: Chooser) -> str | None:
    found = c.tensor(lambda t: overlaps_itself(t) and c.calculable(t))
    return None if found is None else _guarded(c, found[1], f"{found[0]}." + c.any(["fill_(2)", "zero_()"]))


@statement(WRITES, 2)
def at_index(c: Chooser) -> str | None:
    if (found := _target(c)) is None:
        return None
    x, t = found
    index = c.few(
        [
            "0",
            "1:",
            "..., 0",
            "::2",
            "-1",
            "..., 1:",
            ":, None, 0",
            "torch.tensor([0, -1]).to(device)",  # in range: otherwise the CPU stops half way
            "torch.tensor([-1])",
            "..., torch.tensor(0)",
            "7",
        ]
    )
    if "torch.tensor" in index and overlaps_itself(t):
        return None
    value = c.number(t.dtype) if c.chance(0.6) else f"{x}[{index}].clone()"
    return _guarded(c, t, f"{x}[{index}] = {value}")


@statement(WRITES)
def masked(c: Chooser) -> str | None:
    if (found := _plain_target(c)) is None or found[1].is_complex():
        return None
    x, t = found
    k = c.number(t.dtype)
    form = c.few(
        ["{x}.masked_fill_({x} > 0, {k})", "{x}[{x} > 0] = {k}", "{x}.masked_fill_({x}.detach()[..., :1] == 1, {k})"]
    )
    return _guarded(c, t, form.format(x=x, k=k))


@statement(WRITES)
def along_dimension(c: Chooser) -> str | None:
    if (found := _plain_target(c)) is None or found[1].dim() == 0:
        return None
    x, t = found
    dim, k = c.dim(t), c.number(t.dtype)
    size = t.shape[dim]  # out of range, the CPU stops half way
    if size == 0:
        return None
    index = c.few([f"[0, {size - 1}]", f"[{size // 2}]", f"[{size - 1}, 0]"])
    form = c.few(
        [
            "{x}.index_fill_({dim}, {i}, {k})",
            "{x}.index_copy_({dim}, {i}, {x}.index_select({dim}, {i}))",
            "{x}.index_add_({dim}, {i}, {x}.index_select({dim}, {i}))",
            "{x}.fill_diagonal_({k})",
            "{x}.scatter_({dim}, torch.zeros_like({x}, dtype=torch.long), {k})",
        ]
    )
    return _guarded(c, t, form.format(x=x, dim=dim, i=f"torch.tensor({index}).to(device)", k=k))


@statement(WRITES, 2)
def out(c: Chooser) -> str | None:
    target = c.tensor(lambda t: _grows_defined(c, t) and not overlaps_itself(t) and not t.requires_grad)
    if target is None:
        return None
    x, t = target
    source = c.tensor(lambda s: c.calculable(s) and not s.requires_grad and written_safely(t, s) and _no_growth(t, s))
    if source is None:
        return None
    y, s = source
    if t.untyped_storage()._cdata == s.untyped_storage()._cdata:
        return f"torch.add({y}, 1, out={x})"
    form = c.few(
        [
            "torch.add({y}, 1, out={x})",
            "torch.neg({y}, out={x})" if t.dtype == s.dtype else "torch.add({y}, 2, out={x})",
            "torch.mul({y}, {y}, out={x})",
            "torch.cat(({y}, {y}), out={x})" if torch.can_cast(s.dtype, t.dtype) else "torch.mul({y}, 2, out={x})",
            "torch.sum({y}, -1, out={x})",
            "torch.eq({y}, 1, out={x})",
        ]
    )
    return form.format(x=x, y=y)


def _grows_defined(c: Chooser, t: torch.Tensor) -> bool:
    """An offset behind the end of the storage would leave undefined elements before it when the storage grows."""
    return c.calculable(t) and t.storage_offset() * t.element_size() <= t.untyped_storage().nbytes()


def _no_growth(target: torch.Tensor, source: torch.Tensor) -> bool:
    """Resizing a tensor that shares its storage with the source would make an overlap."""
    return target.shape == source.shape or target.untyped_storage()._cdata != source.untyped_storage()._cdata


@statement(WRITES, 2)
def metadata(c: Chooser) -> str | None:
    if (found := c.tensor(lambda t: not t.requires_grad or c.chance(0.3))) is None:
        return None
    x, t = found
    if t.dim() > 3:
        return f"{x}.squeeze_()"
    form = c.any(
        [
            "t_()",
            f"transpose_({c.dim(t)}, {c.dim(t)})",
            f"unsqueeze_({c.any([0, -1])})",
            "squeeze_()",
            "squeeze_(0)",
            "detach_()",
            "as_strided_((2, 2), (2, 1))",
            "swapaxes_(0, -1)",
            "requires_grad_()",
        ]
    )
    return f"{x}.{form}"


@statement(WRITES)
def resize(c: Chooser) -> str | None:
    if (found := c.tensor(lambda t: _grows_defined(c, t) and (not t.requires_grad or c.chance(0.1)))) is None:
        return None
    sizes = c.few(["(2, 2)", "(3, 4)", "(7,)", "()", "(0,)", "(5, 2)"])
    return f"{found[0]}.resize_({sizes}).fill_(1)"


@statement(WRITES)
def set_(c: Chooser) -> str | None:
    target = c.tensor(lambda t: not t.requires_grad or c.chance(0.1))
    source = c.tensor(lambda t: not t.requires_grad or c.chance(0.1))
    if target is None or source is None:
        return None
    x, y = target[0], source[0]
    if c.is_reinterpreted(target[1]) or c.is_reinterpreted(source[1]) or target[1].dtype != source[1].dtype:
        return None
    count = source[1].untyped_storage().nbytes() // source[1].element_size()
    forms = [
        f"{x}.set_({y})",
        f"{x}.data = {y}",
        f"{x}.set_()",
        f"{x}.data = {y}.clone()",
    ]
    # A vector of as many elements would keep its strides on the CPU, also those that reach beyond the storage.
    if target[1].is_contiguous():
        forms.append(f"{x}.set_({y}.untyped_storage())")
    if count >= 5:
        forms.append(f"{x}.set_({y}.untyped_storage(), 1, (2, 2), (2, 1))")
    return c.any(forms)
