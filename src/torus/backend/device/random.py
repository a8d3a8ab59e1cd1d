"""Random numbers: the default generator of each device."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from torus import _C
from torus.backend.device.indices import Device, index_of


def default_generators() -> tuple[torch.Generator, ...]:
    """The default generator of each device, in order. ``torch.tpu.default_generators`` is this tuple."""
    return tuple(_C.default_generator(index) for index in range(_C.device_count()))


def _generator(device: Device) -> torch.Generator:
    generator: torch.Generator = _C.default_generator(index_of(device))
    return generator


def manual_seed(seed: int) -> None:
    """Seed the current device."""
    _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed every device; `torch.manual_seed` calls this."""
    for generator in default_generators():
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seed the current device with a number from the operating system."""
    _generator(None).seed()


def seed_all() -> None:
    """Seed every device with one number from the operating system."""
    manual_seed_all(_generator(0).seed())


def initial_seed() -> int:
    """The seed of the current device."""
    return _generator(None).initial_seed()


def get_rng_state(device: Device = None) -> torch.Tensor:
    """The state of a device's generator (default: the current one's): its seed and position as bytes on the CPU."""
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """The state of every device."""
    return [generator.get_state() for generator in default_generators()]


def set_rng_state(new_state: torch.Tensor, device: Device = None) -> None:
    """Put back what `get_rng_state` gave."""
    _generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Put back what `get_rng_state_all` gave."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
