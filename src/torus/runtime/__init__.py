"""PJRT without PyTorch: which platform runs, its client, transfers, compiled programs and their cache.

Importing this package is cheap: it loads neither JAX nor jaxlib and starts no client. The first call that needs a
device does. Every name below is an attribute of this package. An *aval* is a pair ``(shape, dtype name)`` such as
``((4, 4), "bfloat16")``. ``device_index`` counts the devices of this process from 0 and is the index of ``tpu:i``. An
array is for this runtime, not for ``jax.numpy``: a process whose programs are all in the cache never imports JAX.

Platform (starts no client; `torus.runtime.platform`)
    ``platform_name() -> str``              ``"cpu"``, ``"cuda"`` or ``"tpu"``; RuntimeError: a forced one is missing.
    ``expected_device_count() -> int``      how many devices the client will have.
    ``is_started() -> bool``                whether the client of this process runs.

Devices and transfers (start the client at first use; `torus.runtime.client` and `torus.runtime.transfers`)
    ``device_count() -> int``
    ``device_name(device_index=0) -> str``             ``"XLA:CPU host"``, ``"NVIDIA H200"``, ``"TPU v6 lite"``.
    ``simulated_slice() -> str | None``                ``"v6e:2x2"`` where the host stands in for it.
    ``from_dlpack(capsule, device_index=0) -> Array``  zero copy; ValueError if it would need one (alignment, strides).
    ``to_dlpack(array) -> capsule``                    zero copy; the consumer may write into the array: use with care.
    ``from_numpy(ndarray, device_index=0, copy=True) -> Array``   keeps every dtype, 64-bit ones included.
    ``to_numpy(array) -> ndarray``                     read-only; no copy on the host platform. Waits for the value.
    ``read_pair(array) -> (int, int)``                 what an int64 array of two holds. Waits for it.
    ``copy_to_device(array, device_index) -> Array``   between devices.
    ``block_until_ready(arrays: list) -> None``
    ``is_ready(array) -> bool``
    ``synchronize(device_index) -> None``              waits for every live array of a device (`torus.runtime.memory`)
    ``memory_info(device_index) -> (free, total)``     in bytes

Lowering (`torus.runtime.lowering`)
    ``lower(fn, avals, device_index=0) -> (stablehlo: str, out_avals: list[aval])``
        Traces ``fn(*arrays)``, which returns an array or a flat list/tuple of arrays, with 64-bit types on. The
        parameters of the program are exactly `avals`, used or not. Equal programs give equal text.
    ``lower_any_size(fn, avals, limits=(), device_index=0) -> (stablehlo, out_avals)``   sizes may be names.
    ``specialize(artifact, sizes) -> (stablehlo: bytes, out sizes)``   the program for one set of sizes.
    ``portable_artifact(stablehlo: str) -> bytes``   serialized to be kept; `programs.get_or_compile` takes the bytes.
    ``portable_version() -> str``                    the version of StableHLO that it is written in.

Programs (`torus.runtime.programs`)
    ``programs.get_or_compile(stablehlo, out_avals, device_index=0, compiler_options=None) -> Program``
        From memory, else from disk, else from the shared store, else compiled. `compiler_options`:
        ``{"xla_cpu_use_fusion_emitters": False}``, part of the key.
    ``programs.lookup_signature(key: bytes, device_index=0) -> tuple[Program, bytes] | None``
        The program and the metadata that a caller (this process or an earlier one) recorded for `key`. The runtime adds
        to the key what it knows: platform, device kind, jaxlib version, XLA_FLAGS, CPU features. The caller adds what
        it alone knows: versions and a fingerprint of the code that made the program (`source_fingerprint(directory) ->
        str`).
    ``programs.find_signature(key: bytes, device_index=0) -> bytes | None``
        The metadata alone; nothing is loaded.
    ``programs.record_signature(key: bytes, program: Program, metadata: bytes) -> None``

    ``Program``: what the core needs to run one program on one device::

        program.execute        # execute([array, ...]) -> ExecuteResults
        program.handlers       # list: results.consume_with_handlers(handlers) -> [array, ...]
        program.out_avals      # list of (shape, dtype name)
        program.key            # str: content address, the same in every process
        program.device_index   # int
        program(arrays)        # the two calls above, for Python callers

Cache (`torus.runtime.cache`)
    ``cache.stats() -> dict``       requests, hits of each tier, misses, compiles, compile_seconds, entries, bytes, ...
    ``cache.clear(disk=True)``      forgets programs in memory (and on disk); programs that callers hold keep working.
    ``cache.explain() -> list``     one record for each miss: what was asked and why it was not there.
    ``cache.set_cache_only(on)``, ``cache.dump_misses(directory)``, ``cache.flush(seconds)``   see `torus.runtime.cache`

Counters
    ``counters``    an object with int attributes ``compiles`` and ``cache_hits``; callers may add to and reset them.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # importing typing would take most of this package's import time
if TYPE_CHECKING:
    from typing import Any

_WHERE = {
    "platform_name": "client",
    "expected_device_count": "client",
    "is_started": "client",
    "device_count": "client",
    "device_name": "client",
    "simulated_slice": "client",
    "from_dlpack": "transfers",
    "to_dlpack": "transfers",
    "from_numpy": "transfers",
    "to_numpy": "transfers",
    "read_pair": "transfers",
    "word_uploader": "transfers",
    "copy_to_device": "transfers",
    "block_until_ready": "transfers",
    "is_ready": "transfers",
    "synchronize": "memory",
    "memory_info": "memory",
    "lower": "lowering",
    "lower_any_size": "lowering",
    "specialize": "specializing",
    "portable_artifact": "jaxlib_adapter",
    "portable_version": "jaxlib_adapter",
    "source_fingerprint": "keys",
    "counters": "counting",
}
_MODULES = ("programs", "cache")

__all__ = [*_WHERE, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _WHERE:
        if _WHERE[name] == "lowering":
            importlib.import_module(f"{__name__}.jax_module").load()
        value = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
