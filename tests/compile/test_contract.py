"""What PyTorch promises of `torch.compile` on any device, Dynamo's part: breaks, guards, side effects, errors."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from tests.compile.compare import compiled, randn, same
from tests.compile.contract import Wrap, contract, graphs, leaf, raises

X = randn(3)


# --- graph breaks


@contract
def test_print_breaks_the_graph(device: str, wrap: Wrap) -> Any:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        print(end="")
        return y.sin()

    return wrap(fn)(X.to(device))


@contract
def test_a_number_read_in_the_middle_is_a_number(device: str, wrap: Wrap) -> Any:
    def fn(x: torch.Tensor) -> Any:
        largest = x.max().item()
        return x * largest, largest > 0, x.sum().tolist() > 0, int(x.numel())

    return wrap(fn, fallback=True)(X.to(device))


@contract
def test_a_branch_on_data_takes_both_ways(device: str, wrap: Wrap) -> Any:
    fn = wrap(lambda x: x.sin() if x.sum() > 0 else x.cos() * 2)
    return fn(X.abs().to(device)), fn(-X.abs().to(device)), fn(X.abs().to(device))


@contract
def test_a_loop_until_the_data_say_stop(device: str, wrap: Wrap) -> Any:
    def fn(x: torch.Tensor) -> torch.Tensor:
        while x.sum() < 10:
            x = x * 2
        return x

    return wrap(fn, fallback=True)(X.abs().to(device))


@contract
def test_a_break_in_an_inner_function_and_in_a_loop(device: str, wrap: Wrap) -> Any:
    def inner(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    def fn(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = inner(x).sin()
        return x

    return wrap(fn)(X.to(device))


@contract
def test_a_break_inside_of_a_context_keeps_the_context(device: str, wrap: Wrap) -> Any:
    def fn(x: torch.Tensor) -> Any:
        with torch.no_grad():
            y = x * 2
            torch._dynamo.graph_break()
            z = y * x
        return y, z, z * x

    return wrap(fn)(leaf(1.0, 2.0, device=device))


@contract
def test_numpy_in_the_middle(device: str, wrap: Wrap) -> Any:
    def fn(x: torch.Tensor) -> torch.Tensor:
        import numpy

        y = numpy.cumsum((x * 2).cpu().numpy())
        return torch.from_numpy(y).to(x.device) + x

    return wrap(fn, fallback=True)(X.to(device))


@contract
def test_functions_that_are_left_alone(device: str, wrap: Wrap) -> Any:
    @torch.compiler.disable
    def eager(x: torch.Tensor) -> torch.Tensor:
        assert not torch.compiler.is_compiling()
        return x * 3

    return wrap(lambda x: eager(x + 1) * 2)(X.to(device))


def _opaque(x: torch.Tensor) -> torch.Tensor:
    return x * 3


@contract
def test_functions_that_go_into_the_graph_unread(device: str, wrap: Wrap) -> Any:
    torch.compiler.allow_in_graph(_opaque)
    try:
        return wrap(lambda x: _opaque(x + 1) * 2, fullgraph=True)(X.to(device))
    finally:
        torch._dynamo.disallow_in_graph(_opaque)


@contract
def test_generators_and_exceptions_inside(device: str, wrap: Wrap) -> Any:
    def numbers() -> Iterator[int]:
        yield from (1, 2)

    def fn(x: torch.Tensor) -> torch.Tensor:
        for n in numbers():
            x = x * n
        try:
            raise KeyError("inside")
        except KeyError:
            x = x + 1
        finally:
            x = x * 2
        return x

    return wrap(fn, fullgraph=True)(X.to(device))


@pytest.mark.parametrize(
    "fn",
    [lambda x: (print(end=""), x)[1], lambda x: x * 2 if x.sum() > 0 else x],
    ids=["print", "branch on data"],
)
def test_fullgraph_refuses_breaks(fn: Callable[..., Any]) -> None:
    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(fn, fullgraph=True)(X.to("tpu"))


# --- guards


_SCALE = 2.0


def _global_scale(x: torch.Tensor) -> torch.Tensor:
    return x * _SCALE


class Switch:
    """Something with an attribute."""

    def __init__(self, on: bool) -> None:
        self.on = on


TABLE = randn(4, 3)
CALLS: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]], int]] = {
    "dtype": (lambda x: x * 2, [(X,), (X.double(),), (X.int(),)], 3),
    "rank": (lambda x: x.sum(-1), [(X,), (X[None],), (X[:, None],)], 3),
    "second size": (lambda x: x * 2, [(X,), (randn(4),), (randn(5),)], 2),
    "one and many": (lambda x, y: x + y, [(X, X), (X, X[:1])], 2),
    "strides": (lambda x: x + 1, [(TABLE,), (randn(3, 4).t(),)], 2),
    "requires_grad": (lambda x: x * 2, [(X,), (X.clone().requires_grad_(),)], 2),
    "an integer": (lambda x, n: x * n, [(X, 3), (X, 4), (X, 5)], 2),
    "a float": (lambda x, n: x * n, [(X, 0.5), (X, 1.5), (X, 2.5)], 2),
    "a bool": (lambda x, n: x * 2 if n else x + 1, [(X, True), (X, False)], 2),
    "a string": (lambda x, n: x * 2 if n == "two" else x + 1, [(X, "two"), (X, "one")], 2),
    "a dtype": (lambda x, t: x.to(t), [(X, torch.float64), (X, torch.int32)], 2),
    "None": (lambda x, y: x * 3 if y is None else x * y, [(X, None), (X, X)], 2),
    "length": (lambda xs: sum(x * 2 for x in xs), [([X],), ([X, X + 1],)], 2),
    "keys": (lambda d: d["a"] * d.get("b", 3), [({"a": X},), ({"a": X, "b": X},)], 2),
    "an attribute": (lambda x, s: x * 2 if s.on else x + 1, [(X, Switch(True)), (X, Switch(False))], 2),
    "a function": (lambda x, f: f(x), [(X, torch.sin), (X, torch.cos)], 2),
    "the same tensor twice": (lambda x, y: x.add(1) * y, [(X, X + 0), (X, X)], 2),
}


@pytest.mark.parametrize("name", CALLS)
def test_guards(name: str) -> None:
    """What a graph assumed is looked at in each call, and each assumption is compiled for once."""
    fn, calls, count = CALLS[name]

    def there(args: tuple[Any, ...]) -> tuple[Any, ...]:
        kept: dict[int, torch.Tensor] = {}

        def move(x: torch.Tensor) -> torch.Tensor:
            return kept.setdefault(
                id(x), torch.empty_like(x, device="tpu").copy_(x).detach().requires_grad_(x.requires_grad)
            )

        with torch.no_grad():
            return torch.utils._pytree.tree_map_only(torch.Tensor, move, args)

    fast, before = compiled(fn), graphs()
    for _ in range(2):
        for args in calls:
            same(fast(*there(args)), fn(*args))
    assert graphs() - before == count


def test_guards_on_modes() -> None:
    """Gradients on or off, autocast, the default dtype, the device of the arguments."""
    x = leaf(1.0, 2.0, device="tpu")
    fn, before = compiled(lambda x: x[:, None] @ x[None] + torch.ones(2, device=x.device)), graphs()
    for _ in range(2):
        assert fn(x).requires_grad
        with torch.no_grad():
            assert not fn(x).requires_grad
        with torch.autocast("tpu", dtype=torch.bfloat16):
            assert fn(x.detach()).dtype is torch.float32
        assert fn(x.detach().cpu()).device.type == "cpu"
        torch.set_default_dtype(torch.float64)
        try:
            assert fn(x).dtype is torch.float64
        finally:
            torch.set_default_dtype(torch.float32)
    assert graphs() - before == 5


@contract
def test_globals_are_guarded(device: str, wrap: Wrap) -> Any:
    global _SCALE
    fn, results = wrap(_global_scale), []
    for _SCALE in (2.0, 3.0, 2.0):
        results.append(fn(X.to(device)))
    return results


class Scaled(nn.Module):
    """A module with everything that a call may change."""

    def __init__(self) -> None:
        super().__init__()
        self.factor, self.calls = 2.0, 0
        self.weight = nn.Parameter(X.clone())
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.total += x.detach()
        self.last = x * self.factor
        return self.last * self.weight + self.total


@contract
def test_attributes_of_modules_are_guarded_and_written(device: str, wrap: Wrap) -> Any:
    model = Scaled().to(device)
    fast, x = wrap(model), X.to(device)
    first = fast(x)
    model.factor = 5.0
    second = fast(x)
    model.weight.requires_grad_(False)
    third = fast(x)
    model.total = torch.ones(3, device=device)
    return first, second, third, fast(x), model.total, model.calls, model.last


@contract
def test_other_layers_of_a_module_are_seen(device: str, wrap: Wrap) -> Any:
    model = nn.Sequential(nn.Sigmoid(), nn.Tanh())
    fast, x = wrap(model), X.to(device)
    first = fast(x)
    model[1] = nn.ReLU()
    model.append(nn.Softmax(-1))
    return first, fast(x)


@contract
def test_a_closure_may_change(device: str, wrap: Wrap) -> Any:
    factor, offset = 2.0, torch.ones(3, device=device)
    fn = wrap(lambda x: x * factor + offset)
    first = fn(X.to(device))
    factor, offset = 3.0, torch.zeros(3, device=device)
    return first, fn(X.to(device))


# --- side effects and structures


@dataclasses.dataclass
class Pair:
    """A class of the user."""

    left: torch.Tensor
    right: torch.Tensor


Point = collections.namedtuple("Point", ["x", "y"])


@contract
def test_side_effects_happen_once_a_call(device: str, wrap: Wrap) -> Any:
    log: list[Any] = []
    table: dict[str, Any] = {}
    count = 0

    def fn(x: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        log.append(x + count)
        table[f"call {len(log)}"] = x.sum()
        return x * 2

    fast = wrap(fn)
    results = [fast(X.to(device)) for _ in range(3)]
    return results, log, table, count


@contract
def test_classes_of_the_user_go_in_and_out(device: str, wrap: Wrap) -> Any:
    def fn(pair: Pair, point: Any, *rest: torch.Tensor, scale: float = 2.0, **named: torch.Tensor) -> Any:
        pair.left = pair.left * scale
        made = Pair(pair.right, point.x)
        return pair.left, made.right, Point(rest[0], named["z"] + 1), {1: rest, "slice": slice(1, 2)}

    x = X.to(device)
    return wrap(fn, fullgraph=True)(Pair(x, x + 1), Point(x + 2, 0), x, x * 2, z=x)


@contract
def test_tensor_properties_and_conversions(device: str, wrap: Wrap) -> Any:
    def fn(x: torch.Tensor) -> Any:
        known = (
            x.dtype,
            x.ndim,
            x.shape,
            x.stride(),
            x.is_floating_point(),
            x.is_contiguous(),
            x.device.type == device,
        )
        return known, x.new_zeros(2), x.type(torch.float64), x.to(x.device), x.T, len(x), list(x.unbind())

    return wrap(fn, fullgraph=True)(TABLE.to(device))


@contract
def test_the_device_of_a_context(device: str, wrap: Wrap) -> Any:
    def fn() -> Any:
        with torch.device(device):
            return torch.ones(3), torch.arange(3) * 2

    made = wrap(fn)()
    assert all(m.device.type == device for m in made)
    return made


# --- modes of gradients


@contract
def test_modes_of_gradients_inside(device: str, wrap: Wrap) -> Any:
    def fn(x: torch.Tensor) -> Any:
        with torch.no_grad():
            first = x * 2
            with torch.enable_grad():
                second = x * 3
        with torch.set_grad_enabled(False):
            third = x * 4
        return first, second, third, torch.is_grad_enabled(), x * 5

    return wrap(fn, fullgraph=True)(leaf(1.0, 2.0, device=device))


@contract
def test_a_mode_that_the_function_leaves_set(device: str, wrap: Wrap) -> Any:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        torch.set_grad_enabled(False)
        return y + x * 3

    try:
        return wrap(fn)(leaf(1.0, 2.0, device=device)), torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)


@contract
def test_inference_mode_inside(device: str, wrap: Wrap) -> Any:
    def fn(x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            y = x * 2
        return y + 1

    return wrap(fn)(X.to(device))


@contract
def test_decorators_inside(device: str, wrap: Wrap) -> Any:
    @torch.no_grad()
    def frozen(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @contextlib.contextmanager
    def own() -> Iterator[float]:
        yield 3.0

    def fn(x: torch.Tensor) -> Any:
        with own() as factor:
            return frozen(x), x * factor

    return wrap(fn)(leaf(1.0, 2.0, device=device))


# --- errors


ERRORS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "sizes": (lambda x, y: x + y, (X, randn(4))),
    "product": (lambda x, y: x @ y, (TABLE, TABLE)),
    "view": (lambda x: x.view(5), (X,)),
    "dimension": (lambda x: x.sum(3), (X,)),
    "dtype": (lambda x: x.bitwise_and(x), (X,)),
    "out of range": (lambda x: x[7], (X,)),
    "assertion": (lambda x: (_ for _ in ()).throw(AssertionError) if x.shape[0] == 3 else x, (X,)),
    "backward of no scalar": (lambda x: (x * 2).backward(), (X.clone().requires_grad_(),)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_of_the_user_raise_and_the_next_call_works(name: str) -> None:
    fn, args = ERRORS[name]
    fast = compiled(lambda bad, *args: fn(*args) if bad else args[0] * 2, fallback=True)
    there = [a.detach().to("tpu").requires_grad_(a.requires_grad) for a in args]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert raises(lambda: fn(*args))
        assert raises(lambda: fast(True, *there))
    same(fast(False, *there), args[0] * 2)
