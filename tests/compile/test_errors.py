"""Graphs that cannot be compiled, options that do not exist, and what is said about them."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import library

from tests.compile.compare import compiled, randn, same
from torus.backend.compile.errors import CompileError, CompileWarning


@library.custom_op("torus_tests::identity", mutates_args=())
def identity(x: torch.Tensor) -> torch.Tensor:
    """An op that has no rule, and works on any device."""
    return x.clone()


identity.register_fake(torch.empty_like)
identity.register_autograd(lambda ctx, grad: grad)


def no_rule(x: torch.Tensor) -> torch.Tensor:
    return identity(x) * 1


def test_error_names_op_sizes_and_line() -> None:
    with pytest.raises(CompileError) as caught:
        compiled(no_rule)(torch.ones(3, 4, device="tpu"))
    text = str(caught.value)
    assert "torus_tests.identity.default" in text
    assert "float32[3, 4]" in text
    assert "test_errors.py" in text
    assert "return identity(x) * 1" in text


def test_falls_back_op_by_op_with_one_warning() -> None:
    fn, x = compiled(no_rule, fallback=True), randn(3)
    with pytest.warns(CompileWarning, match="runs op by op.*identity") as caught:
        same(fn(x.to("tpu")), x)
    assert sum(issubclass(w.category, CompileWarning) for w in caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompileWarning)
        same(fn(x.to("tpu")), x)


def test_fallback_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORUS_COMPILE_FALLBACK", raising=False)
    fn, x = compiled(no_rule, fallback=None), torch.ones(3, device="tpu")
    with pytest.warns(CompileWarning):
        same(fn(x), torch.ones(3))


def test_fallback_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORUS_COMPILE_FALLBACK", "0")
    with pytest.raises(CompileError):
        compiled(no_rule, fallback=None)(torch.ones(3, device="tpu"))


def test_fallback_has_gradients_and_writes() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.add_(1)
        return no_rule(x * x) * y

    x, y = torch.full((3,), 2.0, device="tpu", requires_grad=True), torch.zeros(3, device="tpu")
    with pytest.warns(CompileWarning):
        compiled(fn, fallback=True)(x, y).sum().backward()
    assert y.cpu().tolist() == [1, 1, 1]
    assert x.grad is not None
    assert x.grad.cpu().tolist() == [4, 4, 4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"options": {"fallbak": True}}, "no option fallbak; it has .*fallback"),
        ({"mode": "fastest"}, "no mode 'fastest'; it has default, reduce-overhead"),
        ({"options": {"num_dynamic_buckets": 0}}, "num_dynamic_buckets is a number from 1 on"),
        ({"options": {"bucket_size": -1}}, "bucket_size one from 0 on"),
    ],
    ids=["option", "mode", "buckets", "bucket size"],
)
def test_bad_options_raise(arguments: dict[str, Any], message: str) -> None:
    torch._dynamo.reset()
    with pytest.raises(Exception, match=message) as caught:
        torch.compile(torch.sin, backend="tpu", **arguments)(torch.ones(2, device="tpu"))
    assert isinstance(getattr(caught.value, "inner_exception", caught.value), ValueError)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_modes_compute_the_same(mode: str) -> None:
    x = randn(5)
    torch._dynamo.reset()
    same(torch.compile(lambda x: x.sin() + x, backend="tpu", mode=mode)(x.to("tpu")), x.sin() + x)


def test_index_out_of_bounds_raises_and_the_next_call_works() -> None:
    fn, x = compiled(lambda x, i: x[i]), torch.arange(3.0).to("tpu")
    with pytest.raises(IndexError, match="index 5 is out of bounds for dimension 0 with size 3"):
        fn(x, torch.tensor([5], device="tpu")).cpu()
    assert fn(x, torch.tensor([2], device="tpu")).cpu().tolist() == [2]


def test_an_index_that_is_known_is_not_checked_at_run_time() -> None:
    """PyTorch looks at it when the graph is made; each check would be one more result of the program."""
    x = randn(3, 3)
    same(compiled(lambda x: x[1] + x[:, -1])(x.to("tpu")), x[1] + x[:, -1])
    assert "tensor<2xi64>" not in torch.tpu.compiler.programs()[-1].stablehlo


def test_singular_matrix_raises_and_the_next_call_works() -> None:
    fn = compiled(torch.linalg.inv)
    with pytest.raises(torch.linalg.LinAlgError, match=r"factorization failed|singular"):
        fn(torch.zeros(2, 2, device="tpu")).cpu()
    same(fn(torch.eye(2, device="tpu")), torch.eye(2), strides=False)


def test_exception_of_the_user_passes_through() -> None:
    def fn(x: torch.Tensor, fails: bool) -> torch.Tensor:
        y = x + 1
        if fails:
            raise KeyError("mine")
        return y

    fast, x = compiled(fn, fallback=True), torch.ones(2, device="tpu")
    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            fast(x, True)
        assert fast(x, False).cpu().tolist() == [2, 2]
