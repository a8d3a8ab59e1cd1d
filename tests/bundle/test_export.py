"""From a PyTorch module to a bundle and back to numbers."""

from __future__ import annotations

import copy
import re
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.utils import _pytree as pytree

import torus
from tests.bundle.models import CASES, make
from torus.backend.compile.export_values import to_numpy
from torus.bundle import Bundle, BundleError, InputError

NOISE = 4
"""How much larger than PyTorch's own rounding error in float32 ours may be, in the largest error of an output."""


def to_float64(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def check(model: nn.Module, args: tuple[Any, ...], result: Any, **kwargs: Any) -> None:
    """`result` is the model's: the same structure, integers and dtypes, and floats as near to float64's as its own."""
    with torch.no_grad():
        ours = model(*args, **kwargs)
        exact = copy.deepcopy(model).double()(*pytree.tree_map(to_float64, args), **kwargs)
    expected, spec = pytree.tree_flatten(ours)
    found, found_spec = pytree.tree_flatten(result)
    assert spec == found_spec
    for value, reference, array in zip(expected, pytree.tree_leaves(exact), found):
        if isinstance(value, Tensor):
            assert (str(value.dtype).removeprefix("torch."), tuple(value.shape)) == (str(array.dtype), array.shape)
            check_values(value, reference, array)
        else:
            assert value == array


def check_values(value: Tensor, reference: Tensor, array: Any) -> None:
    if not value.is_floating_point():
        assert array.tolist() == value.tolist()
        return
    exact = reference.double().numpy()
    ours, theirs = (np.abs(v.astype("float64") - exact).max() for v in (array, to_numpy(value)))
    assert ours <= NOISE * max(theirs, np.abs(exact).max() * torch.finfo(value.dtype).eps)


def arrays(args: Any) -> list[Any]:
    return [to_numpy(a) for a in pytree.tree_leaves(args)]


@pytest.mark.parametrize("name", CASES)
def test_a_bundle_gives_what_the_module_gives(tmp_path: Path, name: str) -> None:
    model, args = make(name)
    torus.export(model, args, tmp_path / "b")
    check(model, args, Bundle.load(tmp_path / "b").run(*arrays(args)))


@pytest.mark.parametrize("name", ["cnn", "transformer"])
def test_a_module_on_the_device_is_exported_where_it_is(tmp_path: Path, device: str, name: str) -> None:
    model, args = make(name)
    there = copy.deepcopy(model).to(device)
    bundle = torus.export(there, tuple(a.to(device) for a in args), tmp_path / "b")
    check(model, args, bundle.run(*arrays(args)))
    assert {p.device.type for p in there.parameters()} == {device}


def test_an_exported_program_is_exported_with_its_examples(tmp_path: Path) -> None:
    model, args = make("mlp")
    bundle = torus.export(torch.export.export(model, args), (), tmp_path / "b", name="MLP")
    assert bundle.manifest.name == "MLP"
    check(model, args, bundle.run(*arrays(args)))


@pytest.mark.parametrize("name", ["mlp", "decoder"])
def test_bfloat16(tmp_path: Path, name: str) -> None:
    model, args = make(name)
    model = model.bfloat16()
    args = tuple(a.bfloat16() if a.is_floating_point() else a for a in args)
    bundle = torus.export(model, args, tmp_path / "b")
    assert {w.dtype for w in bundle.manifest.weights} == {"bfloat16"}
    check(model, args, bundle.run(*arrays(args)))


def test_every_weight_is_there_and_tied_ones_once(tmp_path: Path) -> None:
    model, args = make("transformer")
    bundle = torus.export(model, args, tmp_path / "b")
    tensors = {w.name: w.tensor for w in bundle.manifest.weights}
    assert tensors["head.weight"] == tensors["tokens.weight"]
    assert len(set(tensors.values())) == len(tensors) - 1
    kinds = {w.name: w.kind for w in bundle.manifest.weights}
    assert (kinds["positions"], kinds["norm.weight"]) == ("buffer", "parameter")
    values = bundle.weights()
    assert values.keys() == model.state_dict().keys()
    assert all(np.array_equal(values[name], to_numpy(t)) for name, t in model.state_dict().items())


def test_views_of_one_storage_are_not_tied(tmp_path: Path) -> None:
    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            both = torch.arange(8.0).reshape(2, 4)
            self.register_buffer("first", both[0])
            self.register_buffer("second", both[1], persistent=False)
            self.register_buffer("column", both[:, 1])

        def forward(self, x: Tensor) -> Tensor:
            return x * self.first + self.second + self.column.sum()

    bundle = torus.export(Halves(), (torch.ones(4),), tmp_path / "b")
    assert len({w.tensor for w in bundle.manifest.weights}) == 3
    assert bundle.run(np.ones(4, "float32")).tolist() == [10, 12, 14, 16]


# Sizes that vary ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [None, [{"batch": 1}, {"batch": 5}]])
def test_a_batch_that_varies(tmp_path: Path, sizes: Any) -> None:
    model, args = make("transformer")
    batch = Dim("batch", min=1, max=32)
    shapes = {"ids": {0: batch}, "mask": {0: batch}}
    bundle = torus.export(model, args, tmp_path / "b", dynamic_shapes=shapes, sizes=sizes)
    for size in (1, 5):
        args = torch.randint(0, 11, (size, 6)), torch.ones(size, 6)
        check(model, args, bundle.run(*arrays(args)))
    assert [str(t) for t in bundle.manifest.inputs] == ["int64 (batch, 6)", "float32 (batch, 6)"]
    assert [str(t) for t in bundle.manifest.outputs][:2] == ["float32 (batch, 6, 11)", "float32 (batch, 16)"]
    with pytest.raises(InputError, match="1 <= batch <= 32"):
        bundle.run(np.zeros((33, 6), "int64"), np.ones((33, 6), "float32"))
    with pytest.raises(InputError, match="batch is 5 in an earlier input"):
        bundle.run(np.zeros((5, 6), "int64"), np.ones((1, 6), "float32"))
    if sizes is not None:
        with pytest.raises(InputError, match="it has batch=1; batch=5"):
            bundle.run(np.zeros((2, 6), "int64"), np.ones((2, 6), "float32"))


def test_one_program_for_every_size_gives_what_one_for_each_gives(tmp_path: Path) -> None:
    model, args = make("cnn")
    program = torch.export.export(model, args, dynamic_shapes=({0: Dim("batch")},))
    every = torus.export(program, (), tmp_path / "every")
    assert "programs  every size; lowered for cpu, and run on every platform" in every.describe()
    each = torus.export(program, (), tmp_path / "each", sizes=[{"input_0": 3}])
    x = np.random.default_rng(0).standard_normal((3, 3, 8, 8), "float32")
    assert np.array_equal(every.run(x), each.run(x))


def test_sizes_that_are_computed_from_others(tmp_path: Path) -> None:
    def result(x: Tensor) -> list[Tensor]:
        n = x.shape[0]
        return [x.new_zeros(n // 2), x.repeat(2) + n, x[1:], x[-2:], x[::2], x[: n - 1], x[None, 2 : n - 1]]

    shapes = ({0: Dim("n", min=6)},)
    bundle = torus.export(Returns(result), (torch.ones(8),), tmp_path / "b", dynamic_shapes=shapes)
    for n in (6, 9):
        x = torch.arange(float(n))
        assert [r.tolist() for r in bundle.run(x.numpy())] == [r.tolist() for r in result(x)]


def test_a_rule_that_must_know_a_size(tmp_path: Path) -> None:
    model, args, shapes = Returns(lambda x: x.unfold(0, 2, 1) * 2), (torch.ones(4),), ({0: Dim("n", min=3)},)
    message = r'give those that are needed, sizes=\[{"n": ...}\]: aten.unfold(.|\n)*test_export'
    with pytest.raises(BundleError, match=message):
        torus.export(model, args, tmp_path / "b", dynamic_shapes=shapes)
    bundle = torus.export(model, args, tmp_path / "b", dynamic_shapes=shapes, sizes=[{"n": 3}])
    assert bundle.run(np.ones(3, "f")).tolist() == [[2, 2], [2, 2]]


class Nested(nn.Module):
    def forward(self, x: Tensor, more: dict[str, Any], *rest: Tensor) -> Tensor:
        return x.sum(1) + more["pair"][1].sum() + rest[0].reshape(-1, 2).sum(1)


def test_sizes_are_named_wherever_they_are(tmp_path: Path) -> None:
    rows = Dim("rows", max=9)
    shapes = ({0: rows, 1: Dim.AUTO}, {"pair": [None, (Dim("n"),)]}, ({0: 2 * rows},))
    args = torch.ones(3, 5), {"pair": [torch.ones(1), torch.ones(4)]}, torch.ones(6)
    bundle = torus.export(Nested(), args, tmp_path / "b", dynamic_shapes=shapes)
    found = {t.name: t.sizes for t in bundle.manifest.inputs}
    assert found == {"x": ("rows", "x_1"), "more_pair_0": (1,), "more_pair_1": ("n",), "rest_0": ("2*rows",)}
    assert bundle.manifest.outputs[0].sizes == ("rows",)
    check(Nested(), args, bundle.run(*arrays(args)))
    with pytest.raises(BundleError, match="does not take the sizes"):
        bundle.run(np.ones((3, 5), "f"), np.ones(1, "f"), np.ones(4, "f"), np.ones(8, "f"))
    sizes = [{"rows": 3, "x_1": 5, "n": 4}]
    bundle = torus.export(Nested(), args, tmp_path / "c", dynamic_shapes=shapes, sizes=sizes)
    check(Nested(), args, bundle.run(*arrays(args)))
    with pytest.raises(InputError, match=re.escape("it has rows=3, x_1=5, n=4")):
        bundle.run(np.ones((3, 5), "f"), np.ones(1, "f"), np.ones(4, "f"), np.ones(8, "f"))


def test_sizes_that_cannot_be(tmp_path: Path) -> None:
    model, args = make("mlp")
    program = torch.export.export(model, args, dynamic_shapes=({0: Dim("batch", max=32)},))
    for sizes, message in (
        ([{"input_0": 40}], "input_0=40 is outside"),
        ([{"rows": 4}], "sizes were given for rows; the dimensions that vary are input_0"),
        ([{}], "sizes were given for none"),
    ):
        with pytest.raises(ValueError, match=message):
            torus.export(program, (), tmp_path / "b", sizes=sizes)
    assert not (tmp_path / "b").exists()


# Inputs and results ---------------------------------------------------------------------------------------------------


class Flags(nn.Module):
    def forward(self, x: Tensor, *, scale: float, bias: Tensor | None = None, negate: bool = False) -> Tensor:
        y = x * scale if bias is None else x * scale + bias
        return -y if negate else y


def test_numbers_and_flags_become_part_of_the_program(tmp_path: Path) -> None:
    x, kwargs = torch.randn(3), {"scale": 2.5, "negate": True}
    bundle = torus.export(Flags(), (x,), tmp_path / "b", kwargs)
    assert [t.name for t in bundle.manifest.inputs] == ["x"]
    assert bundle.run(x.numpy()).tolist() == (-x * 2.5).tolist()
    bundle = torus.export(Flags(), (x,), tmp_path / "c", {"scale": 2.0, "bias": x})
    assert bundle.run(bias=x.numpy(), x=x.numpy()).tolist() == (x * 3).tolist()


class Pair(NamedTuple):
    first: Tensor
    second: Any


class Returns(nn.Module):
    def __init__(self, result: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.result = result

    def forward(self, x: Tensor) -> Any:
        return self.result(x)


@pytest.mark.parametrize(
    ("result", "expected", "names"),
    [
        (lambda x: x, [1.0], ["output"]),
        (lambda x: [x, {"a": x + 1}], [[1.0], {"a": [2.0]}], ["0", "1.a"]),
        (lambda x: Pair(x, (x, None)), {"first": [1.0], "second": ([1.0], None)}, ["first", "second.0"]),
        (lambda x: OrderedDict(b=x, a="text"), {"b": [1.0], "a": "text"}, ["b"]),
        (lambda x: (x.bool(), 3, 2.5, True), ([True], 3, 2.5, True), ["0"]),
    ],
)
def test_results_keep_their_structure(
    tmp_path: Path, result: Callable[[Tensor], Any], expected: Any, names: list[str]
) -> None:
    bundle = torus.export(Returns(result), (torch.ones(1),), tmp_path / "b")
    found = bundle.run(np.ones(1, "float32"))
    assert pytree.tree_map(lambda v: v.tolist() if isinstance(v, np.ndarray) else v, found) == expected
    assert [t.name for t in bundle.manifest.outputs] == names


def test_outputs_of_transformers_become_dicts(tmp_path: Path) -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")
    model = Returns(lambda x: outputs.BaseModelOutput(last_hidden_state=x, hidden_states=(x, x + 1)))
    found = torus.export(model, (torch.ones(1),), tmp_path / "b").run(np.ones(1, "float32"))
    assert list(found) == ["last_hidden_state", "hidden_states"] and found["hidden_states"][1].tolist() == [2]


def test_keys_that_are_no_strings(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="strings as keys"):
        torus.export(Returns(lambda x: {1: x}), (torch.ones(1),), tmp_path / "b")


# State ----------------------------------------------------------------------------------------------------------------


def test_a_model_that_writes_to_its_buffers(tmp_path: Path) -> None:
    model, args = make("cnn")
    model.train()
    with pytest.raises(BundleError, match=r"writes to 1.running_mean, and a bundle has no state: call eval\(\)"):
        torus.export(model, args, tmp_path / "b")
    bundle = torus.export(model, args, tmp_path / "b", mutated_buffers="output")
    found = bundle.run(*arrays(args))
    check(copy.deepcopy(model), args, found["result"])
    model(*args)
    for name, value in found["buffers"].items():
        np.testing.assert_allclose(value, model.get_buffer(name).numpy(), rtol=1e-6)
    assert list(found["buffers"]) == ["1.running_mean", "1.running_var", "1.num_batches_tracked"]


def test_a_model_that_writes_to_its_inputs(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="writes to x, and a bundle has no state: copy it first"):
        torus.export(Returns(lambda x: x.add_(1)), (torch.ones(1),), tmp_path / "b")


def test_a_model_that_draws_random_numbers(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="draws random numbers"):
        torus.export(nn.Dropout(0.5), (torch.ones(4),), tmp_path / "b")


def test_modes_inside_of_a_model(tmp_path: Path) -> None:
    def result(x: Tensor) -> Tensor:
        with torch.no_grad():
            y = x.to(torch.float64).to(torch.float32) * 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return y @ y

    x = torch.randn(4, 4)
    found = torus.export(Returns(result), (x,), tmp_path / "b").run(x.numpy())
    assert found.astype("float32").tolist() == result(x).float().tolist()


def test_what_has_no_lowering_is_named_with_its_line(tmp_path: Path) -> None:
    from torus.backend.compile.errors import CompileError

    with pytest.raises(CompileError, match=r"nonzero(.|\n)*test_export.py"):
        torus.export(Returns(lambda x: x.nonzero().shape[0] + x), (torch.ones(4),), tmp_path / "b")
    assert list(tmp_path.iterdir()) == []
