"""From a portable artifact whose sizes vary to the program for one set of sizes. JAX is not imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torus.runtime import jaxlib_adapter as adapter

Sizes = tuple[int, ...]


def specialize(artifact: bytes, sizes: Sequence[Sizes]) -> tuple[bytes, list[Sizes]]:
    """The module of `artifact` (`lower_any_size`) for parameters of these `sizes`, and the sizes of its results.

    Raises ValueError for sizes that its function does not take.
    """
    with adapter.parsing() as ir:
        module = adapter.read_artifact(artifact)
        function = _rename_main(ir, module)
        try:
            refined = adapter.refine(_with_main(ir, module, function, sizes))
        except RuntimeError as error:
            raise ValueError(f"the program does not take the sizes {list(sizes)}: {error}") from None
        module = ir.Module.parse(refined)  # kept, because its operations do not keep it
        results = _function_type(ir, _main(ir, module)).results
        return refined, [tuple(ir.RankedTensorType(kind).shape) for kind in results]


def _main(ir: Any, module: Any) -> Any:
    operations = module.body.operations
    return next(o for o in operations if ir.StringAttr(o.attributes["sym_name"]).value == "main")


def _function_type(ir: Any, function: Any) -> Any:
    return ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)


def _rename_main(ir: Any, module: Any) -> Any:
    """Make room for another main function; the type of the one that was."""
    main = _main(ir, module)
    main.attributes["sym_name"] = ir.StringAttr.get("any_size")
    main.attributes["sym_visibility"] = ir.StringAttr.get("private")
    return _function_type(ir, main)


def _with_main(ir: Any, module: Any, function: Any, sizes: Sequence[Sizes]) -> str:
    """The module with a main function that has parameters of `sizes` and calls the one that takes any."""
    given = [ir.RankedTensorType.get(s, ir.RankedTensorType(t).element_type) for s, t in zip(sizes, function.inputs)]
    parameters = ", ".join(f"%arg{i}: {kind}" for i, kind in enumerate(given))
    converted = [
        f"%c{i} = stablehlo.convert %arg{i} : ({kind}) -> {wanted}"
        for i, (kind, wanted) in enumerate(zip(given, function.inputs))
    ]
    results = ", ".join(map(str, function.results))
    arguments = ", ".join(f"%c{i}" for i in range(len(given)))
    returned = ", ".join(f"%r#{i}" for i in range(len(function.results)))
    lines = [
        f"func.func public @main({parameters}) -> ({results}) {{",
        *converted,
        f"%r:{len(function.results)} = func.call @any_size({arguments}) : {function}",
        f"func.return {returned} : {results}",
        "}",
    ]
    text: str = module.operation.get_asm(enable_debug_info=False)
    return "\n".join([text.rstrip().removesuffix("}"), *lines, "}"])
