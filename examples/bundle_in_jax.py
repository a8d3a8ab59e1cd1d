"""A bundle read by JAX alone, without torus or PyTorch: ``load`` is all that it takes.

    python examples/bundle_in_jax.py FOLDER INPUTS.npz

Prints the outputs, by name, of the bundle's first program for the arrays in INPUTS.npz, named as the bundle's inputs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
from jax.export import Exported
from safetensors.numpy import load_file

jax.config.update("jax_enable_x64", True)  # int64 stays int64


def load(folder: Path, index: int = 0) -> tuple[Callable[..., list[jax.Array]], dict[str, Any]]:
    """Program number `index` as a function of the inputs, which `jax.jit` can compile, and the manifest."""
    manifest = json.loads((folder / "manifest.json").read_text())
    program = manifest["programs"][index]
    tensors = load_file(folder / manifest["weights_file"])
    weights = [tensors[weight["tensor"]] for weight in manifest["weights"]]
    scope = jax.export.SymbolicScope()  # of the names among the sizes of a program for every size
    inputs = [_aval(tensor, sizes, scope) for tensor, sizes in zip(manifest["inputs"], program["inputs"])]
    outputs = [_aval(tensor, sizes, scope) for tensor, sizes in zip(manifest["outputs"], program["outputs"])]
    avals = [*(jax.core.ShapedArray(w.shape, w.dtype) for w in weights), *inputs]
    exported = _exported((folder / program["file"]).read_bytes(), program["platform"], avals, outputs)
    return lambda *arrays: exported.call(*weights, *arrays), manifest


def _aval(tensor: dict[str, Any], sizes: Sequence[int | str], scope: jax.export.SymbolicScope) -> Any:
    shape = jax.export.symbolic_shape(",".join(map(str, sizes)), scope=scope)
    return jax.core.ShapedArray(shape, np.dtype(getattr(ml_dtypes, tensor["dtype"], tensor["dtype"])))


def _exported(artifact: bytes, platform: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> Exported:
    """JAX's own name for a portable artifact with a signature."""
    structure = jax.tree_util.tree_structure
    return Exported(
        fun_name="bundle",
        in_tree=structure((tuple(inputs), {})),
        in_avals=tuple(inputs),
        out_tree=structure(list(outputs)),
        out_avals=tuple(outputs),
        _has_named_shardings=False,
        _in_named_shardings=(None,) * len(inputs),
        _out_named_shardings=(None,) * len(outputs),
        in_shardings_hlo=(None,) * len(inputs),
        out_shardings_hlo=(None,) * len(outputs),
        nr_devices=1,
        platforms=(platform,),
        ordered_effects=(),
        unordered_effects=(),
        disabled_safety_checks=(),
        mlir_module_serialized=artifact,
        calling_convention_version=jax.export.maximum_supported_calling_convention_version,
        module_kept_var_idx=tuple(range(len(inputs))),
        uses_global_constants=not all(isinstance(size, int) for aval in inputs for size in aval.shape),
        _get_vjp=None,
    )


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    if len(arguments) != 2:
        print(__doc__)
        return 2
    function, manifest = load(Path(arguments[0]))
    given = np.load(arguments[1])
    results = jax.jit(function)(*(given[tensor["name"]] for tensor in manifest["inputs"]))
    for tensor, result in zip(manifest["outputs"], results):
        print(json.dumps({"name": tensor["name"], "dtype": str(result.dtype), "values": np.asarray(result).tolist()}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
