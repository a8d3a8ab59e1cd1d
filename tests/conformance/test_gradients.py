"""Gradients of every op against finite differences in float64, and against the CPU's in float32."""

from __future__ import annotations

import torch
from torch.autograd.gradcheck import gradcheck, gradgradcheck
from torch.testing._internal.common_device_type import instantiate_device_type_tests, ops
from torch.testing._internal.common_utils import TestCase

from tests.conformance.suite import DEVICE, arguments, chosen, on_device, samples, skip_excluded, tensors


def _differentiable(op, sample):
    """The op as a function of the tensors of a sample that want gradients, on the device, and these."""
    tree = on_device(arguments(sample))
    wanted = [t for t in tensors(tree) if t.requires_grad]

    def fn(*given):
        fresh = iter(given)
        first, rest, named = torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda t: next(fresh) if t.requires_grad else t, tree
        )
        result = op.gradcheck_wrapper(op.get_op(), first, *rest, **named)  # which leaves out what a mask hides, say
        if sample.output_process_fn_grad is not None:
            result = sample.output_process_fn_grad(result)
        return tuple(t for t in tensors(result) if t.requires_grad)

    return fn, wanted


class TestGradients(TestCase):
    """First and second derivatives."""

    @ops([op for op in chosen() if op.supports_autograd], allowed_dtypes=(torch.float64, torch.complex128))
    def test_gradients(self, device, dtype, op):
        skip_excluded(self, op, dtype)
        for sample in samples(op, dtype, requires_grad=True):
            fn, wanted = _differentiable(op, sample)
            if wanted and fn(*wanted):
                assert gradcheck(fn, wanted, fast_mode=True, nondet_tol=op.gradcheck_nondet_tol)

    @ops([op for op in chosen() if op.supports_gradgrad], allowed_dtypes=(torch.float64,))
    def test_second_gradients(self, device, dtype, op):
        skip_excluded(self, op, dtype)
        for sample in samples(op, dtype, requires_grad=True):
            fn, wanted = _differentiable(op, sample)
            if wanted and fn(*wanted):
                assert gradgradcheck(fn, wanted, fast_mode=True, gen_non_contig_grad_outputs=True)


instantiate_device_type_tests(TestGradients, globals(), only_for=(DEVICE,))
