"""One stream of random numbers for both devices, so that methods that sample are compared number by number."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch.utils import _pytree as pytree

_FUNCTIONS = (
    "bernoulli",
    "multinomial",
    "normal",
    "poisson",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
)
_METHODS = ("bernoulli_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "uniform_")


@contextlib.contextmanager
def one_stream(seed: int) -> Iterator[None]:
    """Every draw in the block is made on the CPU in float32, from one seed, and then moved to where it was asked for.

    The functions of `torch` are replaced for the time being, rather than watched by a mode, which a compiler would see.
    """
    import numpy as np

    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  scikit-learn and Captum draw from the global one
    with contextlib.ExitStack() as stack, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        for name in _FUNCTIONS:
            stack.enter_context(mock.patch.object(torch, name, _drawn_on_the_cpu(getattr(torch, name))))
        for name in _METHODS:
            stack.enter_context(mock.patch.object(torch.Tensor, name, _filled_on_the_cpu(name)))
        yield


def _drawn_on_the_cpu(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(function)
    def draw(*args: Any, device: Any = None, dtype: torch.dtype | None = None, **kwargs: Any) -> torch.Tensor:
        like = next((x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)), None)
        where = device or (torch.get_default_device() if like is None else like.device)
        wanted = dtype or (None if like is None else like.dtype)
        if dtype is not None and not dtype.is_floating_point:
            kwargs["dtype"] = dtype
        if like is None:
            kwargs["device"] = "cpu"
        args, kwargs = pytree.tree_map_only(torch.Tensor, _narrow, (args, kwargs))
        drawn = function(*args, **kwargs)
        return drawn.to(where, wanted if drawn.is_floating_point() else drawn.dtype)

    return draw


def _filled_on_the_cpu(name: str) -> Callable[..., torch.Tensor]:
    method = getattr(torch.Tensor, name)

    @functools.wraps(method)
    def fill(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        drawn = method(_narrow(tensor).clone(), *args, **kwargs)
        with torch.no_grad():
            return tensor.copy_(drawn)

    return fill


def _narrow(tensor: torch.Tensor) -> torch.Tensor:
    """On the CPU, in float32 where it was float64: the same draws for every precision."""
    return tensor.detach().to("cpu", torch.float32 if tensor.dtype == torch.float64 else tensor.dtype)
