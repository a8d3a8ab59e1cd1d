"""Rules that other packages add or replace, in every mode, and in the key of the cache."""

from __future__ import annotations

import textwrap

import jax
import jax.numpy as jnp
import pytest
import torch
from torch import library

import torus
from tests.device.process import run
from tests.eager.fusing import running
from torus.backend import rules
from torus.backend.lowering.registry import RULES

LIBRARY = library.Library("torus_rules_test", "DEF")
LIBRARY.define("swish(Tensor x, float beta) -> Tensor")
LIBRARY.define("pair(Tensor x, int n) -> (Tensor, Tensor)")


@library.custom_op("torus_rules_test::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return x**3


@cube.register_fake
def _(x):
    return torch.empty_like(x)


cube.register_autograd(
    lambda ctx, grad: grad * 3 * ctx.saved_tensors[0] ** 2,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


@library.register_fake("torus_rules_test::swish")
def _(x, beta):
    return torch.empty_like(x)


@torch.tpu.register_rule("torus_rules_test::swish")
def swish(x, beta):
    return x * jax.nn.sigmoid(beta * x)


@torus.register_rule(torch.ops.torus_rules_test.pair.default)
def pair(x, n):
    return x * n, jnp.concatenate([x] * n)


torch.tpu.register_rule(cube)(lambda x: x * x * x)


def _swish(x):
    return torch.ops.torus_rules_test.swish(x, 1.5)


def _expected(x):
    return x * torch.sigmoid(1.5 * x)


@pytest.fixture
def x():
    return torch.linspace(-2, 2, 6)


def test_added_rule_runs_eagerly(x):
    torch.testing.assert_close(_swish(x.to("tpu")).cpu(), _expected(x))


def test_added_rule_is_fused(x):
    moved = x.to("tpu")
    with running("foreground"):
        before = torch.tpu.counters()["programs"]
        y = (_swish(moved + 1) * 2).cpu()
    torch.testing.assert_close(y, _expected(x + 1) * 2)
    assert torch.tpu.counters()["programs"] - before == 1


def test_added_rule_is_compiled(x):
    compiled = torch.compile(lambda t: _swish(t + 1) * 2, backend="tpu", fullgraph=True)
    torch.testing.assert_close(compiled(x.to("tpu")).cpu(), _expected(x + 1) * 2)


def test_without_a_fake_kernel_the_rule_decides(x):
    first, second = torch.ops.torus_rules_test.pair(x.to("tpu"), 2)
    torch.testing.assert_close((first.cpu(), second.cpu()), (x * 2, torch.cat([x, x])))


def test_custom_op_with_its_gradient(x):
    moved = x.to("tpu").requires_grad_()
    cube(moved).sum().backward()
    torch.testing.assert_close(moved.grad.cpu(), 3 * x**2)


def test_replaced_rule_serves_all_forms_and_compiled_functions(x):
    name = "aten::erfinv"
    previous, source = RULES[name], dict(rules._sources)
    compiled = torch.compile(lambda t: torch.erfinv(t) + 1, backend="tpu")
    small = (x / 4).to("tpu")
    torch.testing.assert_close(compiled(small).cpu(), torch.erfinv(x / 4) + 1)
    try:
        torch.tpu.register_rule(name, replace=True)(lambda t: t * 7)
        assert torch.equal(torch.erfinv(small).cpu(), x / 4 * 7)
        assert torch.equal(small.clone().erfinv_().cpu(), x / 4 * 7)
        torch.testing.assert_close(compiled(small).cpu(), x / 4 * 7 + 1)
    finally:
        RULES[name] = previous
        rules.tell_core(previous)
        rules._sources.clear()
        rules._sources.update(source)
        rules._forget_programs()
    torch.testing.assert_close(torch.erfinv(small).cpu(), torch.erfinv(x / 4))


def test_unknown_op():
    with pytest.raises(LookupError, match="no op torus_rules_test::nothing"):
        torch.tpu.register_rule("torus_rules_test::nothing")(lambda x: x)


def test_second_rule_must_say_that_it_replaces():
    with pytest.raises(ValueError, match=r"already has a rule.*replace=True"):
        torch.tpu.register_rule("aten::erf")(lambda x: x)


def test_what_the_core_does_cannot_be_replaced():
    with pytest.raises(ValueError, match="device core"):
        torch.tpu.register_rule("aten::view", replace=True)(lambda x, size: x)


def test_failed_registration_leaves_the_old_rule():
    before = RULES["aten::erf"]
    with pytest.raises(TypeError):
        torch.tpu.register_rule("aten::erf", replace=True, nothing=1)(lambda x: x)
    assert RULES["aten::erf"] is before


SCRIPT = """
    import sys, torch, torus
    from torch import library
    sys.path.insert(0, {folder!r})
    library.define("mine::f", "(Tensor x) -> Tensor")
    library.register_fake("mine::f", torch.empty_like)
    import mine_rules
    print(torch.ops.mine.f(torch.ones((), device="tpu")).item())
"""


def test_changed_file_is_never_answered_with_an_old_program(tmp_path):
    for factor in (2, 3, 2):
        (tmp_path / "mine_rules.py").write_text(
            f"import torch\n\n@torch.tpu.register_rule('mine::f')\ndef f(x):\n    return x * {factor}\n"
        )
        script = textwrap.dedent(SCRIPT.format(folder=str(tmp_path)))
        assert run(script, TORUS_CACHE_DIR=str(tmp_path / "cache"), PYTHONDONTWRITEBYTECODE="1").split() == [
            f"{factor}.0"
        ]
