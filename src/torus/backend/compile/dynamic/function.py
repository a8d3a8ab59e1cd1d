"""A graph of dynamic sizes as a function over padded arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torus.backend.compile.dynamic import combine, indexing, moves  # noqa: F401  they fill the table of handlers
from torus.backend.compile.dynamic.run import PaddedRun
from torus.backend.compile.graph import GraphFunction
from torus.backend.compile.symbols import Bindings
from torus.backend.lowering.lazy import jnp


class PaddedFunction(GraphFunction):
    """As `GraphFunction`, with the real sizes as arguments after the others.

    `bindings` has the padded size of each symbol; `symbols` are those whose real sizes come at run time.
    """

    def __init__(self, module: torch.fx.GraphModule, bindings: Bindings, symbols: Sequence[Any]) -> None:
        super().__init__(module, bindings)
        self.symbols = list(symbols)

    def __call__(self, *arguments: Any, generator: Any = None) -> list[Any]:
        count = len(self.placeholders)
        real = {s: jnp.asarray(v, "int64").reshape(()) for s, v in zip(self.symbols, arguments[count:], strict=True)}
        return PaddedRun(self, generator, real).run(arguments[:count])
