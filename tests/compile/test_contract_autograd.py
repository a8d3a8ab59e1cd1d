"""What PyTorch promises of `torch.compile` on any device, AOTAutograd's part: gradients, aliases, writes, hooks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from tests.compile.compare import compiled, randn
from tests.compile.contract import Wrap, contract, leaf, raises

X = randn(3)


def table(device: str, requires_grad: bool = True) -> torch.Tensor:
    """Three rows and four columns, always the same."""
    numbers = torch.linspace(-2, 3, 12).reshape(3, 4)
    return numbers.clone().to(device).requires_grad_(requires_grad)


def grad(output: torch.Tensor, *inputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Gradients of the weighted sum of an output; None where there is none."""
    weights = torch.linspace(1, 2, output.numel()).reshape(output.shape).to(output)
    return torch.autograd.grad((output * weights).sum(), inputs, allow_unused=True, retain_graph=True)


# --- which gradients there are


@contract
def test_gradients_that_are_none(device: str, wrap: Wrap) -> Any:
    x, y, unused = (leaf(1.0, 2.0, device=device) for _ in range(3))
    first, second = wrap(lambda x, y, unused: (x * 2, y.sin() * x))(x, y, unused)
    return grad(first + second, x, y, unused)


@contract
def test_outputs_without_gradients(device: str, wrap: Wrap) -> Any:
    def fn(x: torch.Tensor, flag: torch.Tensor) -> Any:
        values, places = x.max(0)
        return values, places, x > 1, x.detach() * 2, flag & (x > 0), None, 3

    x = leaf(1.0, 2.0, device=device)
    results = wrap(fn)(x, torch.tensor([True, False], device=device))
    return results, grad(results[0], x)


@contract
def test_only_some_arguments_require_gradients(device: str, wrap: Wrap) -> Any:
    fn = wrap(lambda x, y: x * y.exp())
    x, y = leaf(1.0, 2.0, device=device), torch.ones(2, device=device)
    return grad(fn(x, y), x), grad(fn(y, x), x), fn(y, y)


@contract
def test_backward_again_with_and_without_what_was_kept(device: str, wrap: Wrap) -> Any:
    x = leaf(1.0, 2.0, device=device)
    y = wrap(lambda x: (x.sin() * x).sum())(x)
    y.backward(retain_graph=True)
    y.backward()
    return x.grad, raises(lambda: y.backward())


@contract
def test_gradients_flow_through_several_compiled_functions(device: str, wrap: Wrap) -> Any:
    first, second = wrap(lambda x: x.sin() * 2), torch.exp
    x = leaf(1.0, 2.0, device=device)
    y = first(second(first(x) * x))
    return y, grad(y, x)


@contract
def test_a_gradient_of_ones_that_is_expanded(device: str, wrap: Wrap) -> Any:
    x = table(device)
    wrap(lambda x: x.sin())(x).sum().backward()
    x.grad, first = None, x.grad
    wrap(lambda x: x.sin())(x).backward(torch.ones(1, 1, device=device).expand(3, 4))
    return first, x.grad


@contract
def test_a_gradient_in_another_layout(device: str, wrap: Wrap) -> Any:
    x = table(device)
    wrap(lambda x: x.sin() * 2)(x).backward(table(device, False).t().contiguous().t())
    return x.grad


@contract
def test_requires_grad_is_set_inside(device: str, wrap: Wrap) -> Any:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = (x * 2).detach().requires_grad_()
        return y * 3

    return wrap(fn, fallback=True)(X.to(device))


@contract
def test_vector_products_and_functional_modules(device: str, wrap: Wrap) -> Any:
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.copy_(table("cpu")[:2]), model.bias.zero_()
    model.to(device)

    def loss(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.func.functional_call(model, weights, (x,)).square().sum()
        return result

    weights = {name: value.detach() for name, value in model.named_parameters()}
    fast = wrap(lambda w, x: torch.func.grad_and_value(loss)(w, x))
    return fast(weights, table(device, False))


# --- writes and aliases, with gradients


@contract
def test_an_intermediate_is_written(device: str, wrap: Wrap) -> Any:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[0] = 5
        y[1:].mul_(x[1:])
        return y.sin_()

    x = table(device)
    y = wrap(fn)(x)
    return y, grad(y, x)


@contract
def test_an_argument_with_a_gradient_is_written(device: str, wrap: Wrap) -> Any:
    x = leaf(1.0, 2.0, device=device)
    y = x * 3
    z = wrap(lambda y: y.mul_(2).sin())(y)
    return y, z, grad(z, x), grad(y, x)


@contract
def test_a_view_with_a_gradient_is_written(device: str, wrap: Wrap) -> Any:
    x = table(device)
    y = x * 3
    z = wrap(lambda row: row.mul_(2).sum())(y[1])
    return y, z, grad(y, x), grad(z, x)


@contract
def test_a_leaf_is_written_without_gradients(device: str, wrap: Wrap) -> Any:
    def fn(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x.mul_(2)
        return x.sin()

    x = leaf(1.0, 2.0, device=device)
    y = wrap(fn)(x)
    return x, y, grad(y, x)


@contract
def test_a_leaf_with_gradients_may_not_be_written(device: str, wrap: Wrap) -> Any:
    return raises(lambda: wrap(lambda x: x.mul_(2))(leaf(1.0, 2.0, device=device)))


@contract
def test_what_backward_needs_may_not_be_written(device: str, wrap: Wrap) -> Any:
    x = leaf(1.0, 2.0, device=device)
    scale = torch.ones(2, device=device)
    y = wrap(lambda x, scale: x * scale)(x, scale)
    scale.add_(1)
    return raises(lambda: y.sum().backward())


@contract
def test_two_views_of_one_tensor_with_gradients(device: str, wrap: Wrap) -> Any:
    x = table(device)
    y = x * 3
    z = wrap(lambda a, b: (a.mul_(2), b * 3)[1])(y[:2], y[1:])
    return y, z, grad(z, x), grad(y, x)


@contract
def test_results_that_are_views_have_gradients(device: str, wrap: Wrap) -> Any:
    def fn(x: torch.Tensor) -> Any:
        y = x * 2
        return x.t(), y, y[1:], y.view(-1)

    x = table(device)
    turned, whole, rows, flat = wrap(fn)(x)
    shared = (turned._base is x, rows._base is whole._base or rows._base is whole)
    grads = [grad(y, x) for y in (turned, whole, rows, flat)]
    with torch.no_grad():
        whole.add_(1)
    return turned, whole, rows, flat, grads, shared[0], rows.detach().cpu().equal(whole[1:].detach().cpu())


@contract
def test_a_result_may_be_written_afterwards(device: str, wrap: Wrap) -> Any:
    x = leaf(1.0, 2.0, device=device)
    y = wrap(lambda x: x * 2)(x)
    y.mul_(3)
    return y, grad(y, x)


@contract
def test_an_argument_that_comes_back_keeps_its_history(device: str, wrap: Wrap) -> Any:
    x = leaf(1.0, 2.0, device=device)
    y = x * 3
    same_one, other = wrap(lambda y: (y, y * 2))(y)
    return same_one is y, grad(same_one, x), grad(other, x)


@contract
def test_sizes_of_an_argument_are_changed(device: str, wrap: Wrap) -> Any:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x.t_()
        x.unsqueeze_(0)
        return x * 2

    x = table(device, False)
    return wrap(fn)(x), x


@contract
def test_writes_that_cancel_and_writes_to_nothing(device: str, wrap: Wrap) -> Any:
    def fn(x: torch.Tensor, empty: torch.Tensor) -> torch.Tensor:
        empty.add_(1)
        x.add_(1).sub_(1)
        return x[:0].zero_()

    x = torch.ones(3, device=device)
    return wrap(fn)(x, torch.ones(0, device=device)), x


@contract
def test_data_and_detach_share_memory(device: str, wrap: Wrap) -> Any:
    def fn(x: torch.Tensor) -> Any:
        y = x * 2
        z = y.detach()
        z.add_(1)
        return y, z

    x = leaf(1.0, 2.0, device=device)
    y, z = wrap(fn)(x)
    return y, z, grad(y, x)


@contract
def test_the_gradient_is_used_and_written_inside(device: str, wrap: Wrap) -> Any:
    x = leaf(1.0, 2.0, device=device)
    x.grad = torch.ones(2, device=device)

    def fn(x: torch.Tensor) -> torch.Tensor:
        x.grad.mul_(3)  # type: ignore[union-attr]
        return x * x.grad

    return wrap(fn)(x).detach(), x.grad


@contract
def test_buffers_that_training_writes(device: str, wrap: Wrap) -> Any:
    model = nn.BatchNorm1d(4).to(device)
    x = table(device)
    wrap(model)(x).exp().sum().backward()
    return dict(model.named_buffers()), [p.grad for p in model.parameters()]


# --- hooks


@contract
def test_hooks_of_gradients_outside(device: str, wrap: Wrap) -> Any:
    seen: list[Any] = []
    x = leaf(1.0, 2.0, device=device)
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad))
    y = x * 2
    y.retain_grad()
    z = wrap(lambda y: y.sin())(y)
    z.register_hook(lambda g: g * 5)
    z.sum().backward()
    return seen, x.grad, y.grad


@contract
def test_backward_hooks_of_modules(device: str, wrap: Wrap) -> Any:
    seen: list[Any] = []
    model = nn.Sequential(nn.Identity(), nn.Tanh()).to(device)
    model[1].register_full_backward_hook(lambda m, given, got: (given[0] * 2,))
    model[1].register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    model.register_full_backward_pre_hook(lambda m, got: seen.append(got[0].clone()))
    x = leaf(1.0, 2.0, device=device)
    wrap(model, fallback=True)(x).sum().backward()
    return x.grad, seen


@contract
def test_hooks_of_what_is_saved(device: str, wrap: Wrap) -> Any:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * x

    fast, x = wrap(fn), leaf(1.0, 2.0, device=device)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.cpu(), lambda t: t.to(device)):
        y = fast(x)
    return y, grad(y, x)


# --- functions and classes of the user


class Halved(torch.autograd.Function):
    """Two results, of which one has no gradient, and an argument that is no tensor."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor | None, scale: float) -> Any:
        ctx.scale = scale
        ctx.save_for_backward(x)
        places = (x > 0).long()
        ctx.mark_non_differentiable(places)
        return x * scale if y is None else x * y, places

    @staticmethod
    def backward(ctx: Any, got: torch.Tensor, _: Any) -> Any:
        (x,) = ctx.saved_tensors
        return got * ctx.scale / 2, (got * x if ctx.needs_input_grad[1] else None), None


@contract
def test_functions_with_several_results_and_no_gradients(device: str, wrap: Wrap) -> Any:
    fn = wrap(lambda x, y: Halved.apply(x.sin(), y, 3.0))
    x, y = leaf(1.0, 2.0, device=device), leaf(3.0, 4.0, device=device)
    alone, both = fn(x, None), fn(x, y)
    return alone, both, grad(alone[0], x), grad(both[0], x, y)


class Apart(torch.autograd.Function):
    """The form in which the context is set up apart, and vmap is generated."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, got: torch.Tensor) -> torch.Tensor:
        return got * ctx.saved_tensors[0] + 1


@contract
def test_functions_with_a_context_of_their_own(device: str, wrap: Wrap) -> Any:
    x = leaf(1.0, 2.0, device=device)
    y = wrap(lambda x: Apart.apply(x * 2))(x)
    return y, grad(y, x)


class Failing(torch.autograd.Function):
    """An error on the way back."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, got: torch.Tensor) -> torch.Tensor:
        raise KeyError("on the way back")


def test_an_error_on_the_way_back() -> None:
    x = leaf(1.0, 2.0, device="tpu")
    with pytest.raises(Exception, match="on the way back"):
        compiled(lambda x: Failing.apply(x), fallback=True)(x).sum().backward()


@contract
def test_tensor_subclasses_go_in_and_out(device: str, wrap: Wrap) -> Any:
    def pair(offset: float) -> TwoTensor:
        return TwoTensor(table(device, False) + offset, table(device, False) * 2 + offset)

    def parts(value: Any) -> Any:
        return type(value).__name__, value.a, value.b

    x = pair(0).requires_grad_()
    y = wrap(lambda x, y, z: (x.sin() * y + z).t())(x, pair(1), table(device, False))
    y.sum().backward()
    return parts(y.detach()), parts(x.grad)


@contract
def test_subclasses_without_code_of_their_own(device: str, wrap: Wrap) -> Any:
    class Tagged(torch.Tensor):
        """A class that only has a name."""

    x = X.to(device).as_subclass(Tagged)
    y = wrap(lambda x: x.sin() * 2)(x)
    weight = nn.Parameter(X.to(device))
    return type(y).__name__, y.as_subclass(torch.Tensor), wrap(lambda w: w * 2)(weight)


@contract
def test_a_mode_of_functions_is_seen(device: str, wrap: Wrap) -> Any:
    class Doubled(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            return result * 2 if func is torch.sin else result

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) + 1

    fast, x = wrap(fn), X.to(device)
    plain = fast(x)
    with Doubled():
        doubled = fast(x)
    return plain, doubled, fast(x)


@contract
def test_sizes_of_gradients_that_are_summed(device: str, wrap: Wrap) -> Any:
    x, y, z = (table(device), leaf(1.0, 2.0, 3.0, 4.0, device=device), leaf(2.0, device=device))
    result = wrap(lambda x, y, z: (x * y + z) / (y + 3))(x, y, z)
    return result, grad(result, x, y, z)


@contract
def test_the_graph_of_a_function_that_was_compiled_twice(device: str, wrap: Wrap) -> Any:
    twice = wrap(wrap(lambda x: x.sin() * 2))
    x = leaf(1.0, 2.0, device=device)
    y = twice(x)
    return y, grad(y, x)


@contract
def test_deterministic_algorithms(device: str, wrap: Wrap) -> Any:
    fn = wrap(lambda x, i: x.index_add(0, i, x[: len(i)] * 2).cumsum(0))
    index = torch.tensor([0, 0, 2], device=device)
    torch.use_deterministic_algorithms(True)
    try:
        return fn(table(device, False), index)
    finally:
        torch.use_deterministic_algorithms(False)


@contract
def test_a_number_of_a_graph_without_breaks(device: str, wrap: Wrap) -> Any:
    return wrap(lambda x: x * x.sum().item(), fullgraph=True)(X.to(device))
