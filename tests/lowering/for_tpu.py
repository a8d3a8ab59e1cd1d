"""The programs of these tests, compiled for a TPU too: every rule has a case here, so every rule is compiled.

`make test-conformance` asks for it, since it takes minutes. With ``TORUS_TPU_PROGRAMS=only`` the programs are not run.
"""

from __future__ import annotations

import atexit
import collections
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

WANTED = os.environ.get("TORUS_TPU_PROGRAMS", "")
MOST = 2
"""Programs of each rule in one process."""

compiled: collections.Counter[str] = collections.Counter()
failed: dict[str, str] = {}


def compile(rule: str, program: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """Compile the first programs of a rule. Raises CompileError with the compiler's words, for a rule that
    `torus.twin.rule_exceptions` does not list.
    """
    from torus.twin.rule_exceptions import EXCEPTIONS

    if compiled[rule] < MOST and rule not in failed:
        try:
            _compile(program, arguments)
            compiled[rule] += 1
        except Exception as error:
            failed[rule] = f"{type(error).__name__}: {error}"
            if rule not in EXCEPTIONS:
                raise
    if WANTED == "only":
        pytest.skip("compiled for a TPU, not run")


def _compile(program: Callable[..., Any], arguments: Sequence[Any]) -> None:
    from torus.runtime import lowering
    from torus.twin.compiler import QUICK, Compiler
    from torus.twin.topology import Topology

    avals = [(np.shape(each), str(np.asarray(each).dtype)) for each in arguments]
    text, _ = lowering.lower_ahead("tpu", program, avals)
    Compiler(Topology.parse("v6e:1x1")).compile(text, options=QUICK, executable=False, timeout=300)


@atexit.register
def _report() -> None:
    """Leave word of what was compiled, where that is asked for."""
    if path := os.environ.get("TORUS_TPU_REPORT"):
        Path(path).write_text(json.dumps({"compiled": compiled, "failed": failed}, indent=1))
