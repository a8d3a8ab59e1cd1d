"""Results of every op in every dtype that the CPU has, functional, in place and with out=; errors of bad arguments."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.common_device_type import OpDTypes, instantiate_device_type_tests, ops
from torch.testing._internal.common_utils import TestCase

from tests.conformance.compare import check, error, largest, rounding
from tests.conformance.suite import (
    DEVICE,
    arguments,
    chosen,
    in_double,
    on_cpu,
    on_device,
    outcome,
    samples,
    skip_excluded,
    tensors,
)


def _call(op, tree):
    first, rest, named = tree
    return op(first, *rest, **named)


class TestValues(TestCase):
    """Against the CPU in the same dtype; where both round differently, against float64."""

    @ops(chosen(), dtypes=OpDTypes.supported)
    def test_forward(self, device, dtype, op):
        skip_excluded(self, op, dtype)
        for sample in samples(op, dtype):
            tree = arguments(sample)
            expected = on_cpu(_call(op, on_cpu_copy(tree)))
            actual = _call(op, on_device(tree))
            assert all(t.device.type == DEVICE for t in tensors(actual)), "a result is not on the device"
            check(on_cpu(actual), expected, lambda tree=tree: _call(op, in_double(tree)))

    @ops([op for op in chosen() if op.inplace_variant is not None], allowed_dtypes=(torch.float32, torch.int64))
    def test_inplace(self, device, dtype, op):
        skip_excluded(self, op, dtype)
        for sample in samples(op, dtype):
            first, rest, named = arguments(sample)
            expected = first.clone()
            if sample.broadcasts_input or outcome(lambda: op.inplace_variant(expected, *rest, **named)) is not None:  # noqa: B023
                continue
            moved, others, names = on_device((first.clone(), rest, named))
            result = op.inplace_variant(moved, *others, **names)
            assert result is moved
            check(moved.cpu(), expected, lambda tree=(first, rest, named): _call(op, in_double(tree)))

    @ops([op for op in chosen() if op.supports_out], allowed_dtypes=(torch.float32, torch.int64))
    def test_out(self, device, dtype, op):
        skip_excluded(self, op, dtype)
        for sample in samples(op, dtype):
            tree = arguments(sample)
            expected = _call(op, tree)
            if not isinstance(expected, torch.Tensor) or not expected.is_contiguous():
                continue
            first, rest, named = on_device(tree)
            wide = torch.zeros(*expected.shape, 2, dtype=expected.dtype, device=DEVICE)
            for out in (torch.zeros_like(expected, device=DEVICE), wide[..., 0]):
                result = op(first, *rest, **named, out=out)
                assert result is out
                check(out.cpu(), expected, lambda tree=tree: _call(op, in_double(tree)))
            assert not wide[..., 1].any()

    @ops(chosen(), allowed_dtypes=(torch.float32,))
    def test_float32_error(self, device, dtype, op):
        """No larger against float64 than twice the CPU's: the worst of all samples, relative to the largest result."""
        skip_excluded(self, op, dtype)
        worst, allowed = 0.0, 0.0
        for sample in samples(op, dtype, most=20):  # the worst of a few is chance
            tree = arguments(sample)
            exact = tensors(_call(op, in_double(tree)))
            theirs, ours = tensors(_call(op, tree)), tensors(on_cpu(_call(op, on_device(tree))))
            for cpu, value, truth in zip(theirs, ours, exact, strict=True):
                size = largest(truth) or 1.0
                worst = max(worst, error(value, truth) / size)
                allowed = max(allowed, (2 * error(cpu, truth) + rounding(cpu.dtype, truth)) / size)
        assert worst <= allowed, f"the error is {worst:.3g} of the largest result, allowed {allowed:.3g}"

    @ops([op for op in chosen() if op.error_inputs_func is not None], dtypes=OpDTypes.none)
    def test_errors(self, device, op):
        """Bad arguments raise what they raise on the CPU."""
        skip_excluded(self, op)
        for number, bad in enumerate(op.error_inputs("cpu")):
            tree = arguments(bad.sample_input)
            moved = on_device(tree)
            expected = outcome(lambda: _call(op, tree))  # noqa: B023
            actual = outcome(lambda: _call(op, moved))  # noqa: B023
            assert isinstance(actual, type(expected)), f"error input {number}: {actual!r}, on the CPU {expected!r}"


def on_cpu_copy(tree):
    """Arguments that the CPU may write to."""
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), tree)


instantiate_device_type_tests(TestValues, globals(), only_for=(DEVICE,))

if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__]))
