"""Bundles that PyTorch made, read where it is not: by torus without it, and by JAX without either."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.export import Dim

import torus
from tests.bundle.models import make
from tests.bundle.test_export import arrays, check
from tests.runtime.conftest import environment

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module", params=["cnn", "transformer"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The name of a model, and a folder with its bundle and its inputs."""
    folder = tmp_path_factory.mktemp(request.param)
    model, args = make(request.param)
    shapes = tuple({0: Dim("batch", max=64)} for _ in args) if request.param == "transformer" else None
    bundle = torus.export(model, args, folder / "bundle", dynamic_shapes=shapes)
    names = [tensor.name for tensor in bundle.manifest.inputs]
    np.savez(folder / "inputs.npz", **dict(zip(names, arrays(args))))
    return request.param, folder


def test_torus_without_torch(exported: tuple[str, Path], python: Callable[..., Any]) -> None:
    name, folder = exported
    code = f"""
import pickle
from pathlib import Path
import numpy as np
from torus.bundle import Bundle
folder = Path({str(folder)!r})
result = Bundle.load(folder / "bundle").run(dict(np.load(folder / "inputs.npz")))
(folder / "result").write_bytes(pickle.dumps(result))
print(sys.modules["torch"], "jax" in sys.modules)
"""
    assert python(code).stdout == "None False\n"
    model, args = make(name)
    check(model, args, pickle.loads((folder / "result").read_bytes()))


def test_jax_without_torus_and_torch(exported: tuple[str, Path]) -> None:
    name, folder = exported
    code = f"""
import sys
sys.modules["torch"] = sys.modules["torus"] = None
sys.path.insert(0, {str(EXAMPLES)!r})
import bundle_in_jax
sys.exit(bundle_in_jax.main(sys.argv[1:]))
"""
    command = [sys.executable, "-c", code, folder / "bundle", folder / "inputs.npz"]
    env = environment(JAX_PLATFORMS="cpu")
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    bundle = torus.bundle.Bundle.load(folder / "bundle")
    _, args = make(name)
    for line, tensor, values in zip(found, bundle.manifest.outputs, bundle.run_flat(arrays(args)), strict=True):
        assert (line["name"], line["dtype"]) == (tensor.name, tensor.dtype)
        np.testing.assert_allclose(np.array(line["values"]), values, rtol=1e-5, atol=1e-6)
