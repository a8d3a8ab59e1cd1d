"""Each entry point into JAX's internals: a new release that moves one fails here."""

from __future__ import annotations

import sys
import threading
import warnings
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.runtime.conftest import add_program
from torus.runtime import host_memory, lowering
from torus.runtime import jaxlib_adapter as adapter

DTYPES = (
    "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128 "
    "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu"
).split()

F44 = [((4, 4), "float32")]


@pytest.fixture(scope="module")
def devices() -> list[Any]:
    return adapter.cpu_devices(2)


def put(values: np.ndarray[Any, Any], device: Any, copy: bool = True) -> Any:
    return adapter.from_numpy(values, device, adapter.Placement(device), copy)


def run(executable: Any, outs: list[adapter.Aval], device: Any, *arrays: Any) -> list[np.ndarray[Any, Any]]:
    execute, handlers = adapter.bind(executable, outs, device)
    return [adapter.to_numpy(a) for a in execute(list(arrays)).consume_with_handlers(handlers)]


@pytest.mark.parametrize("version", ["0.9.2", "0.13.0", "1.0.0"])
def test_other_versions_of_jaxlib_are_refused(version: str) -> None:
    with pytest.raises(ImportError, match=rf"jaxlib >=0.10,<0.13 and found {version}; run: pip install"):
        adapter.check_version(version)


@pytest.mark.parametrize("version", ["0.10.0", "0.10.2", "0.12.9", "0.11.0.dev20260101"])
def test_these_versions_of_jaxlib_are_accepted(version: str) -> None:
    adapter.check_version(version)


def test_devices(devices: list[Any]) -> None:
    assert [d.platform for d in devices] == ["cpu", "cpu"]
    assert adapter.device_kind(devices[1]) == "XLA:CPU host"
    assert devices[0].client is not jax.devices("cpu")[0].client
    assert adapter.versions(devices[0]).keys() == {"platform", "platform_version", "device_kind", "jaxlib", "jax"}


def test_another_platform_of_jax_that_is_not_there() -> None:
    with pytest.raises(RuntimeError):
        adapter.plugin_devices("cuda" if not any(d.platform == "gpu" for d in jax.devices()) else "tpu")


# Lowering


def test_equal_programs_have_equal_text(devices: list[Any]) -> None:
    def first(x: Any, y: Any) -> Any:
        return jnp.where(x > 0, x, y)

    def second(a: Any, b: Any) -> list[Any]:
        return [jnp.where(a > 0, a, b)]

    text, outs = lowering.lower_for(devices[0], first, F44 * 2)
    assert lowering.lower_for(devices[1], second, F44 * 2) == (text, outs)
    assert outs == F44
    assert "first" not in text and "loc(" not in text and "test_adapter" not in text


def test_unused_parameters_stay(devices: list[Any]) -> None:
    text, _ = lowering.lower_for(devices[0], lambda x, y, z: y, [((2,), "int64"), ((3,), "float64"), ((), "bool")])
    assert "%arg0: tensor<2xi64>, %arg1: tensor<3xf64>, %arg2: tensor<i1>" in text


def test_several_results_constants_and_an_argument_returned(devices: list[Any]) -> None:
    table = np.arange(6, dtype=np.int64) + 2**40
    text, outs = lowering.lower_for(devices[0], lambda x: (x, table, x.sum()), [((2,), "bfloat16")])
    assert outs == [((2,), "bfloat16"), ((6,), "int64"), ((), "bfloat16")]
    x = put(np.ones(2, adapter.dtype("bfloat16")), devices[0])
    same, constant, total = run(adapter.compile(text, devices[0], {}), outs, devices[0], x)
    assert same.tolist() == [1, 1] and constant.tolist() == table.tolist() and total == 2


def test_control_flow_sorting_random_bits_and_linear_algebra(devices: list[Any]) -> None:
    def fn(x: Any, state: Any) -> Any:
        looped = lax.fori_loop(0, 3, lambda i, v: v * 2, x)
        chosen = lax.cond(x[0, 0] > 0, lambda v: v + 1, lambda v: v - 1, x)
        bits = lax.rng_bit_generator(state, (4,), "uint32", algorithm=lax.RandomAlgorithm.RNG_PHILOX)[1]
        return looped, chosen, lax.sort(x), bits, jnp.linalg.cholesky(x)

    values = np.array([[4.0, 2.0], [2.0, 3.0]])
    arguments: list[adapter.Aval] = [((2, 2), "float64"), ((2,), "uint64")]
    text, outs = lowering.lower_for(devices[0], fn, arguments)
    arrays = [put(values, devices[0]), put(np.array([1, 2], np.uint64), devices[0])]
    looped, chosen, ordered, bits, factor = run(adapter.compile(text, devices[0], {}), outs, devices[0], *arrays)
    assert (looped == values * 8).all() and (chosen == values + 1).all() and (ordered == np.sort(values)).all()
    assert len(set(bits.tolist())) == 4
    assert np.allclose(factor @ factor.T, values)


def test_effects_are_refused(devices: list[Any]) -> None:
    def fn(x: Any) -> Any:
        jax.debug.print("{}", x)
        return x

    with pytest.raises(ValueError, match="side effects"):
        lowering.lower_for(devices[0], fn, F44)


def test_callbacks_are_refused(devices: list[Any]) -> None:
    def fn(x: Any) -> Any:
        return jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct((4, 4), "float32"), x)

    with pytest.raises(ValueError, match="call back into Python"):
        lowering.lower_for(devices[0], fn, F44)


def test_an_error_in_the_function_comes_through_and_leaves_the_thread_usable(devices: list[Any]) -> None:
    with pytest.raises(ZeroDivisionError):
        lowering.lower_for(devices[0], lambda x: 1 // 0, F44)
    assert lowering.lower_for(devices[0], lambda x: x + x, F44)[1] == F44
    assert not jax.config.jax_enable_x64


def test_lowering_in_threads(devices: list[Any]) -> None:
    texts: list[str] = []

    def add(n: int) -> Any:
        return lambda x: jnp.tanh(x) + n

    def work() -> None:
        texts.extend(lowering.lower_for(devices[0], add(n), F44)[0] for n in range(10))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 40 and len(set(texts)) == 10


def test_the_compiler_context_is_replaced_when_it_has_grown(
    devices: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lowering, "_CONTEXT_BYTES", 0)
    first = lowering._compiler.context()
    text, _ = lowering.lower_for(devices[0], lambda x: x * 3, F44)
    assert lowering._compiler.context() is not first
    assert lowering.lower_for(devices[0], lambda x: x * 3, F44)[0] == text


# Executables


@pytest.mark.parametrize("as_bytes", [False, True])
def test_compile_serialize_and_load_on_another_device(devices: list[Any], as_bytes: bool) -> None:
    text, outs = add_program(3)
    executable = adapter.compile(
        text.encode() if as_bytes else text, devices[0], {"xla_cpu_use_fusion_emitters": False}
    )
    data = adapter.serialize(executable)
    for device, loaded in ((devices[0], executable), (devices[1], adapter.deserialize(data, devices[1]))):
        x = put(np.arange(3, dtype=np.float32), device)
        execute, handlers = adapter.bind(loaded, outs, device)
        (result,) = execute([x, x]).consume_with_handlers(handlers)
        assert result.devices() == {device}
        assert adapter.to_numpy(result).tolist() == [0, 2, 4]


def test_an_option_that_does_not_exist(devices: list[Any]) -> None:
    with pytest.raises(RuntimeError, match="No such compile option: 'xla_nonsense'"):
        adapter.compile(add_program(3)[0], devices[0], {"xla_nonsense": True})


def test_options_change_the_code(devices: list[Any]) -> None:
    text, _ = lowering.lower_for(devices[0], lambda x: jnp.tanh(x) * 2, [((64,), "float32")])
    sizes = {
        len(adapter.serialize(adapter.compile(text, devices[0], {"xla_cpu_use_fusion_emitters": e})))
        for e in (True, False)
    }
    assert len(sizes) == 2


def test_text_that_is_not_a_program(devices: list[Any]) -> None:
    with pytest.raises((ValueError, RuntimeError)):
        adapter.compile("not a module", devices[0], {})


def test_bytes_that_are_not_an_executable(devices: list[Any]) -> None:
    with pytest.raises((ValueError, RuntimeError)):
        adapter.deserialize(b"not an executable", devices[0])


# Transfers


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 5)])
def test_every_dtype_there_and_back(devices: list[Any], name: str, shape: tuple[int, ...]) -> None:
    values = (np.arange(int(np.prod(shape)), dtype=np.float64).reshape(shape) % 5).astype(adapter.dtype(name))
    for copy in (True, False):
        array = put(values, devices[1], copy)
        back = adapter.to_numpy(array)
        assert (array.shape, str(array.dtype), array.devices()) == (shape, name, {devices[1]})
        assert back.dtype == values.dtype and back.tobytes() == values.tobytes()
        assert not back.flags.writeable


@pytest.mark.parametrize("name", ["int64", "uint64", "float64", "complex128"])
def test_64_bits_stay_exact(devices: list[Any], name: str) -> None:
    values = np.array([2**53 + 1, 2**62 + 3]).astype(name)
    assert adapter.to_numpy(put(values, devices[0])).tolist() == values.tolist()


@pytest.mark.parametrize("size", [1, 100, 300_000])
def test_a_copy_does_not_follow_its_source(devices: list[Any], size: int) -> None:
    values = np.ones(size)
    array = put(values, devices[0])
    values[:] = 2
    assert (adapter.to_numpy(array) == 1).all()


def test_reading_does_not_copy(devices: list[Any]) -> None:
    array = put(np.ones((8, 8)), devices[0])
    assert adapter.to_numpy(array).ctypes.data == array.unsafe_buffer_pointer()


def test_a_read_value_outlives_its_array(devices: list[Any]) -> None:
    values = adapter.to_numpy(put(np.arange(1000.0), devices[0]))
    for _ in range(50):
        put(np.zeros(1000), devices[0])
    assert (values == np.arange(1000.0)).all()


def aligned(shape: tuple[int, ...], shift: int = 0) -> np.ndarray[Any, Any]:
    size = int(np.prod(shape)) * 4
    raw = np.zeros(size + 128, np.uint8)
    start = -raw.ctypes.data % 64 + shift
    values = raw[start : start + size].view(np.float32).reshape(shape)
    values[:] = np.arange(values.size).reshape(shape)
    return values


def test_jax_is_left_alone_while_another_thread_imports_it(devices: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    half, values = ModuleType("jax"), aligned((4, 4))
    half.__spec__ = ModuleSpec("jax", None)
    half.__spec__._initializing = True  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jax", half)
    monkeypatch.setattr(adapter._jax, "dlpack_managed_tensor_to_buffer", None)
    array = adapter.from_dlpack(values.__dlpack__(), devices[1], adapter.Placement(devices[1]))
    assert (adapter.to_numpy(array) == values).all()


@pytest.mark.parametrize("shape", [(4, 4), (16,), (4, 1), (1, 4), (2, 1, 3)])
def test_dlpack_shares_memory(devices: list[Any], shape: tuple[int, ...]) -> None:
    values = aligned(shape)
    array = adapter.from_dlpack(values.__dlpack__(), devices[1], adapter.Placement(devices[1]))
    assert array.unsafe_buffer_pointer() == values.ctypes.data and array.devices() == {devices[1]}
    again = adapter.from_dlpack(adapter.to_dlpack(array), devices[1], adapter.Placement(devices[1]))
    assert again.unsafe_buffer_pointer() == values.ctypes.data
    assert (adapter.to_numpy(again) == values).all()


@pytest.mark.parametrize("name", DTYPES)
def test_dlpack_of_every_dtype(devices: list[Any], name: str) -> None:
    array = put(np.ones((3, 3), adapter.dtype(name)), devices[0])
    again = adapter.from_dlpack(adapter.to_dlpack(array), devices[0], adapter.Placement(devices[0]))
    assert str(again.dtype) == name and again.unsafe_buffer_pointer() == array.unsafe_buffer_pointer()


def misfits() -> list[np.ndarray[Any, Any]]:
    steps, permuted = aligned((4, 4))[:, ::2], aligned((2, 3, 4)).transpose(1, 0, 2)
    return [aligned((4, 4), 4), aligned((4, 4)).T, steps, permuted]


def test_dlpack_that_would_need_a_copy_raises(devices: list[Any]) -> None:
    for values in misfits():
        with pytest.raises(ValueError, match="cannot be shared, copy it"):
            adapter.from_dlpack(values.__dlpack__(), devices[0], adapter.Placement(devices[0]))


# The path of a process without JAX gives the same


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 5), (1, 4), (4, 1)])
def test_a_view_of_a_capsule(devices: list[Any], name: str, shape: tuple[int, ...]) -> None:
    values = (np.arange(int(np.prod(shape))).reshape(shape) % 5).astype(adapter.dtype(name))
    array = put(values, devices[0])
    capsule = adapter.to_dlpack(array)
    view = host_memory.view_capsule(capsule)
    assert (view.dtype, view.shape, view.tobytes()) == (values.dtype, shape, values.tobytes())
    assert not view.flags.writeable
    again = adapter._from_host_capsule(capsule, devices[1], adapter.Placement(devices[1]))
    assert (str(again.dtype), again.shape, again.devices()) == (name, shape, {devices[1]})
    if values.size:
        assert view.ctypes.data == again.unsafe_buffer_pointer() == array.unsafe_buffer_pointer()


def test_a_view_keeps_its_capsule_and_its_memory() -> None:
    values = aligned((300, 300))
    expected = values.copy()
    view = host_memory.view_capsule(values.__dlpack__())
    del values
    junk = [np.full((300, 300), 7.0, np.float32) for _ in range(20)]
    assert (view == expected).all()
    assert len(junk) == 20


def test_a_capsule_that_would_need_a_copy_raises_without_jax_too(devices: list[Any]) -> None:
    for values in misfits():
        with pytest.raises(ValueError, match="cannot be shared, copy it"):
            adapter._from_host_capsule(values.__dlpack__(), devices[0], adapter.Placement(devices[0]))


def test_copies_between_devices(devices: list[Any]) -> None:
    array = put(np.arange(6.0), devices[0])
    for device in devices:
        copy = adapter.copy_to_device(array, device, adapter.Placement(device))
        assert copy.devices() == {device}
        assert copy.unsafe_buffer_pointer() != array.unsafe_buffer_pointer()
        assert (adapter.to_numpy(copy) == np.arange(6.0)).all()


def test_waiting(devices: list[Any]) -> None:
    text, outs = lowering.lower_for(devices[0], lambda x: x @ x @ x, [((600, 600), "float32")])
    execute, handlers = adapter.bind(adapter.compile(text, devices[0], {}), outs, devices[0])
    (result,) = execute([put(np.ones((600, 600), np.float32), devices[0])]).consume_with_handlers(handlers)
    adapter.block_until_ready([result])
    assert adapter.is_ready(result)
    assert adapter.to_numpy(result)[0, 0] == 360_000


def test_nothing_warns(devices: list[Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text, outs = lowering.lower_for(devices[0], lambda x: x + 1, [((2,), "int64")])
        assert run(adapter.compile(text, devices[0], {}), outs, devices[0], put(np.array([1, 2]), devices[0]))[
            0
        ].tolist() == [2, 3]
