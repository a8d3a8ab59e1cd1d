"""The only module that imports the internals of jaxlib, which each release may move; `torus.runtime.lowering` is the
one for JAX's tracer.

JAX itself is not imported here: it costs more than all else that a process needs whose programs are in the cache. So
arrays carry a small `Shaped` and `Placement` instead of JAX's ShapedArray and SingleDeviceSharding; they are for this
runtime, not for
``jax.numpy``.

It holds no state of the process: a *device* here is a PJRT device object, and `torus.runtime.client` says which one an
index means.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jaxlib
import ml_dtypes
import numpy as np

from torus.runtime import host_memory, jax_module

# As JAX does: XLA tells every client that starts otherwise. It is read when the library loads.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

from jaxlib import _jax, xla_client

Aval = tuple[tuple[int, ...], str]

SUPPORTED = ((0, 10), (0, 13))
ALIGNMENT = 64
"""The host platform shares memory only from addresses that are a multiple of this."""


def check_version(version: str) -> None:
    """Raise ImportError unless `version` of jaxlib lies in the supported range."""
    low, high = SUPPORTED
    parts = tuple(int(part) for part in version.split(".")[:2])
    if not low <= parts < high:
        wanted = f">={'.'.join(map(str, low))},<{'.'.join(map(str, high))}"
        raise ImportError(
            f"torus needs jaxlib {wanted} and found {version}; run: pip install 'jax{wanted}' 'jaxlib{wanted}'"
        )


check_version(jaxlib.__version__)


# What describes an array ---------------------------------------------------------------------------------------------


def dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a name, ml_dtypes' included."""
    return np.dtype(getattr(ml_dtypes, name, name))


class Shaped:
    """The shape and dtype of an array, as jaxlib asks for them."""

    __slots__ = ("dtype", "shape", "weak_type")

    def __init__(self, shape: tuple[int, ...], kind: np.dtype[Any]) -> None:
        self.shape, self.dtype, self.weak_type = shape, kind, False


class Placement(xla_client.SingleDeviceSharding):
    """A whole array on one device, as jaxlib asks for it."""

    @property
    def memory_kind(self) -> Any:
        return self._memory_kind

    @property
    def device_set(self) -> set[Any]:
        return {self._device}

    def _to_xla_hlo_sharding(self, rank: int) -> Any:
        return xla_client.HloSharding.replicate()


def shaped(aval: Aval) -> Shaped:
    """`Shaped` of a shape and the name of a dtype."""
    return Shaped(tuple(aval[0]), dtype(aval[1]))


# Clients -------------------------------------------------------------------------------------------------------------


def cpu_devices(count: int) -> list[Any]:
    """The devices of a new XLA:CPU client that belongs to us alone, so that the user's JAX backends stay as they
    are.
    """
    return list(xla_client.make_cpu_client(asynchronous=True, num_devices=count).devices())


def plugin_devices(platform: str) -> list[Any]:
    """The local devices of JAX's own client for ``"cuda"`` or ``"tpu"``. Raises RuntimeError if its plugin does not
    load.
    """
    return list(jax_module.load().local_devices(backend=platform))


def tpu_topology(name: str) -> list[Any]:
    """The devices of a TPU topology such as ``"v6e:2x2"``, which programs can be compiled for and which need not exist.

    Loads libtpu into this process, for good. Raises RuntimeError for a topology that it does not know.
    """
    if not xla_client.pjrt_plugin_loaded("tpu"):
        xla_client.load_pjrt_plugin_dynamically("tpu", importlib.import_module("libtpu").get_library_path())
    if not xla_client.pjrt_plugin_initialized("tpu"):
        xla_client.initialize_pjrt_plugin("tpu")
    return list(xla_client.make_tfrt_tpu_c_api_device_topology(name)._make_compile_only_devices())


def device_kind(device: Any) -> str:
    """``"XLA:CPU host"``, or what the runtime calls the chip."""
    return "XLA:CPU host" if device.platform == "cpu" else str(device.device_kind)


def versions(device: Any) -> dict[str, str]:
    """What decides whether an executable of `device` can be used by another process."""
    return {
        "platform": str(device.platform),
        "platform_version": str(device.client.platform_version),
        "device_kind": str(device.device_kind),
        "jaxlib": str(jaxlib.__version__),
        "jax": importlib.metadata.version("jax"),
    }


def environment() -> dict[str, str]:
    """Variables that change what the compiler makes."""
    return {name: " ".join(os.environ.get(name, "").split()) for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")}


def wait_for_all(device: Any) -> None:
    """Wait for every live array of `device`. Raises what its computation raised."""
    for array in device.client.live_arrays():
        try:
            if array._sharding._device == device:
                _jax.batched_block_until_ready([array])
        except RuntimeError:
            if not array.is_deleted():  # another thread may drop an array while this one waits for it
                raise


# Executables ---------------------------------------------------------------------------------------------------------


def needs_kernels(stablehlo: str | bytes) -> bool:
    """Whether a program calls kernels by name, such as LAPACK's; importing JAX is what registers them."""
    return (b"custom_call" if isinstance(stablehlo, bytes) else "custom_call") in stablehlo  # type: ignore[operator]


def register_kernels(device: Any) -> None:
    """Make the kernels known that programs of `device` call by name."""
    jax_module.load()
    if device.platform == "cpu":
        # JAX does this when it lowers such a call; a program that was loaded would call a null pointer.
        importlib.import_module("jaxlib.lapack")._lapack.initialize()


def compile(stablehlo: str | bytes, device: Any, options: dict[str, Any]) -> Any:
    """Compile a StableHLO module for one device. `options` are XLA debug options by name, for this program only."""
    if needs_kernels(stablehlo):
        register_kernels(device)
    return device.client.compile_and_load(stablehlo, _jax.DeviceList((device,)), _compile_options(device, options))


def compile_ahead(stablehlo: str | bytes, devices: Sequence[Any], options: dict[str, Any]) -> Any:
    """Compile a StableHLO module for the first of the `devices` of a topology, as many as it is partitioned for.

    Shardy partitions it, by its annotations. What comes back can be looked at and serialized, not run.
    """
    with parsing() as ir:
        module = ir.Module.parse(stablehlo)
        partitions = module.operation.attributes
        count = ir.IntegerAttr(partitions["mhlo.num_partitions"]).value if "mhlo.num_partitions" in partitions else 1
        if count > len(devices):
            raise ValueError(f"the program is for {count} devices, and the topology has {len(devices)}")
        chosen = tuple(devices[:count])
        given = _compile_options(chosen[0], options) if count == 1 else _partitioning_options(chosen, options)
        return chosen[0].client.compile(module, _jax.DeviceList(chosen), given)


def _partitioning_options(devices: Sequence[Any], options: dict[str, Any]) -> Any:
    result = xla_client.CompileOptions()
    result.num_replicas, result.num_partitions = 1, len(devices)
    result.device_assignment = xla_client.DeviceAssignment.create(np.array([[d.id for d in devices]], np.int32))
    result.executable_build_options.use_spmd_partitioning = True
    result.executable_build_options.use_shardy_partitioner = True
    result.env_option_overrides = list(options.items())
    return result


def _compile_options(device: Any, options: dict[str, Any]) -> Any:
    result = xla_client.CompileOptions()
    result.device_assignment = xla_client.DeviceAssignment.create(np.array([[device.id]], np.int32))
    result.env_option_overrides = list(options.items())
    return result


def portable_version() -> str:
    """The version of StableHLO that portable artifacts are written in: one that readers of twelve weeks ago know."""
    dialect = importlib.import_module("jaxlib.mlir.dialects.stablehlo")
    return str(dialect.get_version_from_compatibility_requirement(dialect.StablehloCompatibilityRequirement.WEEK_12))


def portable_artifact(stablehlo: str) -> bytes:
    """A StableHLO module in the serialization that stays readable for years. Raises ValueError for what is no module.

    Ops of CHLO become composites, which carry their decomposition. `compile` takes the bytes as it takes text.
    """
    try:
        return bytes(_jax.mlir.serialize_portable_artifact(stablehlo, portable_version()))
    except _jax.JaxRuntimeError as error:
        raise ValueError(f"this is not a StableHLO module: {error}") from None


@contextmanager
def parsing() -> Iterator[Any]:
    """A compiler context of its own, in which StableHLO can be read; gives `jaxlib.mlir.ir`."""
    ir = importlib.import_module("jaxlib.mlir.ir")
    context, registry = ir.Context(), ir.DialectRegistry()
    importlib.import_module("jaxlib.mlir._mlir_libs._jax_mlir_ext").register_dialects(registry)  # "func" is one
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    for name in ("func", "stablehlo", "chlo", "sdy"):
        dialect = importlib.import_module(f"jaxlib.mlir.dialects.{name}")
        if hasattr(dialect, "register_dialect"):
            dialect.register_dialect(context)
    with context, ir.Location.unknown(context):
        yield ir


def inline_calls(module: Any) -> None:
    """Put the bodies of functions in the place of calls; the main function of a module is then all there is of it."""
    ir = importlib.import_module("jaxlib.mlir.ir")
    inlined = importlib.import_module("jaxlib.mlir._mlir_libs._jax_mlir_ext").inlined_func_call
    functions = {str(op.name.value): op.operation for op in module.body.operations if "function_type" in op.attributes}
    main = functions.pop("main")
    calls: list[Any] = []

    def note(op: Any) -> Any:
        if op.name == "func.call":
            calls.append(op)
        return ir.WalkResult.ADVANCE

    main.walk(note)
    while calls:
        for call in calls:
            with ir.InsertionPoint(call):
                results = inlined(functions[call.attributes["callee"].value], list(call.operands), call.location)
            for old, new in zip(call.results, results, strict=True):
                old.replace_all_uses_with(new)
            call.erase()
        calls.clear()
        main.walk(note)
    for function in functions.values():
        function.erase()


def run_passes(module: Any, pipeline: str) -> None:
    """Run passes over a module, inside of `parsing`: ``"builtin.module(inline,cse)"``."""
    importlib.import_module("jaxlib.mlir.passmanager").PassManager.parse(pipeline).run(module.operation)


def read_artifact(artifact: bytes) -> Any:
    """The module of a portable artifact, inside of `parsing`."""
    ir = importlib.import_module("jaxlib.mlir.ir")
    dialect = importlib.import_module("jaxlib.mlir.dialects.stablehlo")
    return dialect.deserialize_portable_artifact(ir.Context.current, artifact)


def refine(stablehlo: str) -> bytes:
    """A module whose main function has known sizes, with all others worked out. Raises RuntimeError when it cannot."""
    return bytes(_jax.mlir.refine_polymorphic_shapes(stablehlo.encode()))


def serialize(executable: Any) -> bytes:
    """The bytes of an executable; they are machine code."""
    return bytes(executable.serialize())


def deserialize(data: bytes, device: Any) -> Any:
    """Load an executable on `device`. Never give it bytes that this user did not write: they are run."""
    # Without options it would be bound to the device that it was compiled on.
    options = _compile_options(device, {})
    return device.client.deserialize_executable(data, _jax.DeviceList((device,)), options)


def extra_bytes(executable: Any) -> int:
    """The memory that a run needs beside its arguments: results that take over none of theirs, and what is temporary.
    0 where the runtime does not say.
    """
    try:
        stats = executable.get_compiled_memory_stats()
        results = stats.output_size_in_bytes - stats.alias_size_in_bytes
        return int(stats.temp_size_in_bytes + max(0, results))
    except Exception:
        return 0


def optimized_hlo(executable: Any) -> str:
    """The HLO of an executable after all optimizations; empty where the runtime does not say."""
    try:
        return "\n".join(module.to_string() for module in executable.hlo_modules())
    except Exception:
        return ""


def memory_of(executable: Any) -> dict[str, int]:
    """Bytes that an executable needs; empty where the runtime does not say."""
    try:
        stats = executable.get_compiled_memory_stats()
    except Exception:
        return {}
    names = {"arguments": "argument", "results": "output", "temporaries": "temp", "reused": "alias"}
    return {name: int(getattr(stats, f"{field}_size_in_bytes")) for name, field in names.items()}


def memory_analysis(executable: Any) -> dict[str, int]:
    """What the compiler says of an executable's memory in bytes, by its own names: ``"temp_size_in_bytes"``."""
    stats = executable.get_compiled_memory_stats()
    found = {name: getattr(stats, name) for name in dir(stats) if name.endswith("_in_bytes")}
    return {name: int(value) for name, value in found.items()}


def cost_of(executable: Any) -> dict[str, float]:
    """The compiler's estimates for an executable; empty where the runtime does not say."""
    try:
        found = executable.cost_analysis()
    except Exception:
        return {}
    first = found[0] if isinstance(found, list) else found
    return {str(key): float(value) for key, value in dict(first).items()}


def bind(executable: Any, out_avals: Sequence[Aval], device: Any) -> tuple[Callable[..., Any], list[Any]]:
    """``(execute, handlers)``: ``execute(arrays).consume_with_handlers(handlers)`` is the list of results."""
    placement = Placement(device)
    return executable.execute_sharded, [
        xla_client.array_result_handler(shaped(aval), placement, committed=True, _skip_checks=True)
        for aval in out_avals
    ]


# Arrays --------------------------------------------------------------------------------------------------------------


def from_dlpack(capsule: Any, device: Any, placement: Placement) -> Any:
    """The array over the memory of a DLPack capsule on `device`, not copied.

    Raises ValueError for what would need a copy: an address that is not 64-byte aligned, strides that are not
    row-major.
    """
    if device.platform == "cpu" and not jax_module.is_loaded():
        return _from_host_capsule(capsule, device, placement)  # the call below would import JAX
    stream = None if device.platform == "cpu" else device.get_stream_for_external_ready_events()
    try:
        array = _jax.dlpack_managed_tensor_to_buffer(capsule, device, stream, False)
    except _jax.JaxRuntimeError as error:
        raise ValueError(f"this memory cannot be shared, copy it: {error}") from None
    if not _is_row_major(array):
        # An executable would read the bytes as row-major and be silently wrong.
        raise ValueError("this memory cannot be shared, copy it: its strides are not row-major")
    return array


def _from_host_capsule(capsule: Any, device: Any, placement: Placement) -> Any:
    values = host_memory.view_capsule(capsule)
    if values.ctypes.data % ALIGNMENT and values.size:
        raise ValueError(f"this memory cannot be shared, copy it: its address is not aligned to {ALIGNMENT} bytes")
    return from_numpy(values, device, placement, copy=False)


_ROW_MAJOR = tuple("{" + ",".join(map(str, reversed(range(rank)))) + "}" for rank in range(33))


_PAIR = struct.Struct("@qq")


def _is_row_major(array: Any) -> bool:
    layout, shape = str(array._pjrt_layout), array.aval.shape
    if layout == _ROW_MAJOR[len(shape)]:
        return True
    minor_to_major = [int(dim) for dim in layout.strip("{}").split(":")[0].split(",")]
    order = [dim for dim in reversed(minor_to_major) if shape[dim] > 1]
    return order == sorted(order)


def to_dlpack(array: Any) -> Any:
    """A DLPack capsule over the memory of `array`, not copied. Its consumer can write to it."""
    return _jax.buffer_to_dlpack_managed_tensor(array, None)


def to_numpy(array: Any) -> np.ndarray[Any, Any]:
    """The values of `array`, read-only; without a copy where its memory is the host's. Waits for them."""
    if not jax_module.is_loaded() and array._sharding._device.platform == "cpu" and _is_row_major(array):
        _jax.batched_block_until_ready([array])
        return host_memory.view_capsule(to_dlpack(array))
    values: np.ndarray[Any, Any] = array._single_device_array_to_np_array_did_copy()[0]  # imports JAX
    return values


def read_pair(array: Any) -> tuple[int, int]:
    """The two int64 values of `array`: where it is in the host's memory, without the cost of an ndarray. Waits."""
    if array._sharding._device.platform != "cpu":
        first, second = to_numpy(array).tolist()
        return first, second
    _jax.batched_block_until_ready([array])
    first, second = _PAIR.unpack(ctypes.string_at(array.unsafe_buffer_pointer(), _PAIR.size))
    return first, second


def from_numpy(values: np.ndarray[Any, Any], device: Any, placement: Placement, copy: bool) -> Any:
    """The array with the values and dtype of `values` on `device`.

    With `copy` the memory of `values` is free to change when this returns; without, it must not while the array lives.
    """
    semantics = _jax.HostBufferSemantics
    return _jax.batched_device_put(
        Shaped(values.shape, values.dtype),
        placement,
        [values],
        [device],
        True,
        host_buffer_semantics=semantics.IMMUTABLE_ONLY_DURING_CALL if copy else semantics.ZERO_COPY,
        enable_x64=True,
    )


def word_uploader(words: int, device: Any, placement: Placement) -> tuple[Any, tuple[Any, ...], int]:
    """`batched_device_put` bound to one small buffer: the call, its arguments, and the buffer's address."""
    buffer = np.zeros(words, np.uint32)
    semantics = _jax.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
    aval = Shaped(buffer.shape, buffer.dtype)
    args = (aval, placement, [buffer], [device], True, False, semantics, True)
    return _jax.batched_device_put, args, buffer.ctypes.data


def copy_to_device(array: Any, device: Any, placement: Placement) -> Any:
    """A copy of `array` on a device of the same client."""
    semantics = _jax.ArrayCopySemantics.ALWAYS_COPY
    devices = [_jax.DeviceList((device,))]
    return _jax.batched_copy_array_to_devices_with_sharding([array], devices, [placement], [semantics])[0]


def block_until_ready(arrays: Sequence[Any]) -> None:
    """Wait for every array; raises what its computation raised."""
    _jax.batched_block_until_ready(list(arrays))


def is_ready(array: Any) -> bool:
    """Whether the value of `array` has been computed."""
    return bool(array.is_ready())
