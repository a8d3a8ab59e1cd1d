"""StableHLO text as a list of ops."""

from __future__ import annotations

import pytest

from torus.twin.constants import fold_branches
from torus.twin.module import Module, read


def names(module: Module) -> list[str]:
    return [op.name for op in module.main.ops]


def main(signature: str, *body: str, before: str = "") -> str:
    lines = "\n".join(body)
    return f"module @torus {{\n{before}\nfunc.func public @main({signature} {{\n{lines}\n}}\n}}"


SUM = """%c = stablehlo.constant dense<0.0> : tensor<f32>
%0 = stablehlo.reduce(%a init: %c) applies stablehlo.add across dimensions = [0, 2] :
  (tensor<2x3x4xf32>, tensor<f32>) -> tensor<3xf32>
return %0 : tensor<3xf32>"""


def test_an_op_has_its_operands_results_and_attributes() -> None:
    module = read(main("%a: tensor<2x3x4xf32>) -> tensor<3xf32>", SUM))
    reduce = module.main.ops[1]
    assert [module.values[i].shape for i in reduce.operands] == [(2, 3, 4), ()]
    assert (reduce.ints("dimensions"), module.main.returns) == ((0, 2), reduce.results)


def test_a_region_is_read_with_its_arguments() -> None:
    module = read(main("%a: tensor<2x3x4xf32>) -> tensor<3xf32>", SUM))
    (body,) = module.main.ops[1].regions
    assert ([op.name for op in body.ops], len(body.arguments), body.returns) == (["add"], 2, body.ops[0].results)


@pytest.mark.parametrize(
    ("text", "shape", "dtype"),
    [
        ("tensor<f32>", (), "f32"),
        ("tensor<2x3xbf16>", (2, 3), "bf16"),
        ("tensor<5xcomplex<f32>>", (5,), "complex<f32>"),
        ("tensor<4x1xf8E4M3FN>", (4, 1), "f8E4M3FN"),
        ("tensor<7xui8>", (7,), "ui8"),
    ],
)
def test_a_type_is_a_shape_and_a_dtype(text: str, shape: tuple[int, ...], dtype: str) -> None:
    module = read(main(f"%a: {text}) -> {text}", f"return %a : {text}"))
    value = module.values[module.main.arguments[0]]
    assert (value.shape, value.dtype) == (shape, dtype)


CALLED = """func.func private @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @more(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @twice(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = stablehlo.negate %0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}"""


def test_calls_are_expanded_and_equal_ops_are_one() -> None:
    text = main(
        "%a: tensor<4xf32>) -> tensor<4xf32>",
        "%0 = call @more(%a) : (tensor<4xf32>) -> tensor<4xf32>",
        "%1 = call @twice(%a) : (tensor<4xf32>) -> tensor<4xf32>",
        "%2 = stablehlo.multiply %0, %1 : tensor<4xf32>",
        "return %2 : tensor<4xf32>",
        before=CALLED,
    )
    assert names(read(text)) == ["add", "negate", "multiply"]


def test_a_place_names_each_op_that_comes_of_its_op() -> None:
    text = main(
        "%a: tensor<4xf32>) -> tensor<4xf32>",
        "%0 = call @more(%a) : (tensor<4xf32>) -> tensor<4xf32>",
        "%1 = stablehlo.exponential %0 : tensor<4xf32>",
        "return %1 : tensor<4xf32>",
        before=CALLED,
    )
    module = read(text, places=("blocks.0", 'a "head", größer'))
    assert [op.place for op in module.main.ops] == ["blocks.0", "blocks.0", 'a "head", größer']


MESH = 'sdy.mesh @mesh = <["data"=4, "model"=2]>'
SPLIT = """%0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x6xf32>)
  -> tensor<8x6xf32>
return %0 : tensor<8x6xf32>"""


def test_shardings_of_arguments_reach_the_ops() -> None:
    signature = (
        '%a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}, '
        '%w: tensor<16x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>}) -> tensor<8x6xf32>'
    )
    module = read(main(signature, SPLIT, before=MESH), {"data": 4, "model": 2})
    assert [module.values[i].spec for i in module.main.arguments] == [(("data",), ()), ((), ("model",))]
    assert module.values[module.main.returns[0]].spec == (("data",), ("model",))


def test_what_is_no_module_says_so() -> None:
    with pytest.raises(ValueError, match="this is not a StableHLO module"):
        read("func main")


def test_a_size_that_is_not_known_says_so() -> None:
    with pytest.raises(ValueError, match="a size is not known"):
        read(main("%a: tensor<?xf32>) -> tensor<?xf32>", "return %a : tensor<?xf32>"))


BRANCH = """%p = stablehlo.constant dense<[3.0, 2.0]> : tensor<2xf32>
%two = stablehlo.constant dense<2.0> : tensor<f32>
%0 = stablehlo.broadcast_in_dim %two, dims = [] : (tensor<f32>) -> tensor<2xf32>
%1 = stablehlo.compare EQ, %0, %p, FLOAT : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>
%2 = stablehlo.convert %1 : (tensor<2xi1>) -> tensor<2xi32>
%3 = stablehlo.iota dim = 0 : tensor<2xi32>
%4 = stablehlo.multiply %2, %3 : tensor<2xi32>
%c = stablehlo.constant dense<0> : tensor<i32>
%5 = stablehlo.reduce(%4 init: %c) applies stablehlo.add across dimensions = [0] : (tensor<2xi32>, tensor<i32>)
  -> tensor<i32>
%6 = "stablehlo.case"(%5) ({
  %7 = stablehlo.exponential %a : tensor<4xf32>
  stablehlo.return %7 : tensor<4xf32>
}, {
  %7 = stablehlo.sine %a : tensor<4xf32>
  stablehlo.return %7 : tensor<4xf32>
}) : (tensor<i32>) -> tensor<4xf32>
return %6 : tensor<4xf32>"""


def test_a_branch_that_constants_decide_is_taken() -> None:
    module = fold_branches(read(main("%a: tensor<4xf32>) -> tensor<4xf32>", BRANCH)))
    assert names(module)[-1] == "sine"
    assert module.main.returns == module.main.ops[-1].results


def test_a_branch_that_an_argument_decides_stays() -> None:
    text = BRANCH.replace('"stablehlo.case"(%5)', '"stablehlo.case"(%i)')
    module = fold_branches(read(main("%a: tensor<4xf32>, %i: tensor<i32>) -> tensor<4xf32>", text)))
    assert "case" in names(module)
