"""`torch.tpu.precision` inside of compiled functions: each product is computed as it says, and nothing more is."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import torch
from torch import library

from tests.compile.compare import compiled, moved, randn, same

X = randn(3, 3)


@pytest.fixture(autouse=True)
def precision_as_before() -> Iterator[None]:
    before = torch.tpu.get_precision()
    yield
    torch.tpu.precision(before)


def _products(text: str) -> list[str]:
    """The precision of each product that a program's text has."""
    return re.findall(r"dot_general.*precision = \[(\w+)", text)


def _block(x: torch.Tensor) -> torch.Tensor:
    with torch.tpu.precision(torch.tpu.Precision.DEFAULT):
        y = x @ x
        with torch.tpu.precision("high"):
            y = (y @ x[:, :2]).t()
    return y @ x[:, :1]


def test_a_block_in_one_graph_and_its_gradient_outside() -> None:
    count = len(torch.tpu.compiler.programs())
    x = moved(X, "tpu").requires_grad_()
    compiled(_block, fullgraph=True, serializable=False)(x).sum().backward()
    forward, backward = torch.tpu.compiler.programs()[count:]
    assert _products(forward.stablehlo) == ["DEFAULT", "HIGH", "HIGH", "HIGH", "HIGHEST"]  # three passes
    assert set(_products(backward.stablehlo)) == {"HIGHEST"}
    assert torch.tpu.get_precision() == torch.tpu.Precision.HIGHEST
    same(compiled(_block, fullgraph=True)(x), _block(x))


def test_graphs_that_differ_in_precision_alone_are_two_programs() -> None:
    def with_precision(name: str) -> list[str]:
        def fn(x: torch.Tensor) -> torch.Tensor:
            with torch.tpu.precision(name):
                return x @ x @ x.sin()

        compiled(fn, fullgraph=True, serializable=False)(moved(X, "tpu"))
        return _products(torch.tpu.compiler.programs()[-1].stablehlo)

    assert set(with_precision("high")) == {"HIGH"}
    assert set(with_precision("default")) == {"DEFAULT"}


def test_op_by_op_keeps_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that cannot be compiled runs op by op."""
    from torus.backend.compile import backend
    from torus.backend.compile.errors import CompileError, CompileWarning

    def fail(*args: object) -> None:
        raise CompileError("no")

    seen = []

    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append(torch.tpu.get_precision().name)
        return x.clone()

    monkeypatch.setattr(backend, "Region", fail)
    with library._scoped_library("torus_test", "FRAGMENT") as ops:
        ops.define("look(Tensor x) -> Tensor")
        ops.impl("look", look, "PrivateUse1")
        ops.impl("look", torch.empty_like, "Meta")

        def fn(x: torch.Tensor) -> torch.Tensor:
            with torch.tpu.precision("default"):
                y = torch.ops.torus_test.look(x)
            return torch.ops.torus_test.look(y)

        with pytest.warns(CompileWarning, match="op by op"):
            same(compiled(fn, fullgraph=True, fallback=True)(moved(X, "tpu")), moved(X, "tpu"))
    assert seen == ["DEFAULT", "HIGHEST"]


def test_a_call_outside_of_a_with_statement_sets_it_for_the_process() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        torch.tpu.precision("high")
        return x @ x

    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"with torch\.tpu\.precision"):
        compiled(fn, fullgraph=True)(moved(X, "tpu"))
    same(compiled(fn)(moved(X, "tpu")).cpu(), X @ X, 1e-4)
    assert torch.tpu.get_precision() == torch.tpu.Precision.HIGH


def test_a_word_that_is_none_is_refused() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        with torch.tpu.precision("best"):
            return x @ x

    with pytest.raises(Exception, match="'default', 'high', 'highest'"):
        compiled(fn)(moved(X, "tpu"))


def test_a_block_that_was_stored_first() -> None:
    """As in eager mode it holds from where it was made, and what was before holds again after the block."""
    seen = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        block = torch.tpu.precision("default")
        seen.append(torch.tpu.get_precision().name)
        with block:
            y = x @ x
            seen.append(torch.tpu.get_precision().name)
        seen.append(torch.tpu.get_precision().name)
        return y @ x

    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"with torch\.tpu\.precision"):
        compiled(fn, fullgraph=True)(moved(X, "tpu"))
    before = torch.tpu.get_precision().name
    fast = compiled(fn)
    for _ in range(2):
        seen.clear()
        same(fast(moved(X, "tpu")).cpu(), X @ X @ X, 2e-2)
        assert seen == ["DEFAULT", "DEFAULT", before]
