"""The PyTorch device: it is registered once for a process, without starting a client."""

from __future__ import annotations

import threading
from typing import Any

NAME = "tpu"

unknown_rules: list[str] = []
"""Rules whose op this version of PyTorch does not have."""

_lock = threading.RLock()
_registered = False


def register() -> None:
    """Make the device ``"tpu"`` exist. The second call does nothing.

    Raises ImportError when another package has given PyTorch's slot for new devices a name of its own.
    """
    global _registered
    import torch  # whose autoload may call this function before the lines below run
    from torch.utils import backend_registration

    with _lock:
        if _registered:
            return
        _check_slot(torch)
        core = _core()
        backend_registration.rename_privateuse1_backend(NAME)
        _register_core(core)
        backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)
        _register_module(torch)
        torch.set_autocast_dtype(NAME, torch.bfloat16)
        _registered = True


def _check_slot(torch: Any) -> None:
    taken = torch._C._get_privateuse1_backend_name()
    if taken == "privateuseone" or (taken == NAME and not hasattr(torch, NAME)):
        return
    raise ImportError(
        f'torus cannot add the device "{NAME}": another package has already registered the device "{taken}", '
        f"and PyTorch has one slot (PrivateUse1) for such packages in a process. Uninstall the other package, or set "
        f"TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import only the one that you want."
    )


def _core() -> Any:
    try:
        from torus import _C
    except ImportError as error:
        raise ImportError(
            f"the native core of torus does not load: {error}. It is built when the package is installed, for the "
            "PyTorch that is there then; `pip install --no-build-isolation --no-deps -e .` in its sources builds it."
        ) from error
    return _C


def _register_core(core: Any) -> None:
    from torus.backend import lowering, rules
    from torus.backend.device import limit
    from torus.backend.eager import seam

    core.initialize(seam, _expected_devices())
    limit.apply_settings()
    lowering.load_all()
    for rule in lowering.registry.RULES.values():
        if not rule.eager or rule.name == "aten::_copy_from":  # the core's own kernel says which copies need a program
            continue
        if not rules.tell_core(rule):
            unknown_rules.append(rule.name)


def _expected_devices() -> int:
    """A setting that cannot be met must not break ``import torch``: the first use of the device reports it."""
    from torus import runtime

    try:
        return runtime.expected_device_count()
    except (RuntimeError, ValueError):
        return 1


def _register_module(torch: Any) -> None:
    import sys

    from torus.backend import device

    torch._register_device_module(NAME, device)
    for submodule in device.SUBMODULES:  # `import torch.tpu.cache` must not make a second copy
        sys.modules[f"torch.{NAME}.{submodule.__name__.rpartition('.')[2]}"] = submodule
