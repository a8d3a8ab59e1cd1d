"""Every name that scripts for this device use exists."""

from __future__ import annotations

import pytest
import torch

NAMES = """
    Event Stream Precision EagerMode allow_excess_precision current_device current_stream default_generators
    default_stream device device_count device_of eager_mode get_amp_supported_dtype get_device_name
    get_device_properties get_rng_state
    initial_seed is_available is_initialized manual_seed manual_seed_all precision set_device set_eager_mode
    set_rng_state set_stream stream synchronize topology_aware_mesh counters reset_counters fallbacks cpu_fallback cache
    get_device_capability is_bf16_supported seed seed_all get_rng_state_all set_rng_state_all memory_allocated
    max_memory_allocated reset_peak_memory_stats memory_stats memory_reserved max_memory_reserved mem_get_info
    empty_cache     memory_summary _lazy_init _is_in_bad_fork
""".split()


@pytest.mark.parametrize("name", NAMES)
def test_name(name):
    assert hasattr(torch.tpu, name)


def test_all_lists_only_what_is_there():
    assert all(hasattr(torch.tpu, name) for name in torch.tpu.__all__)


def test_what_comes_later_says_so():
    with pytest.raises(NotImplementedError, match="later version"):
        torch.tpu.topology_aware_mesh((2, 2))
