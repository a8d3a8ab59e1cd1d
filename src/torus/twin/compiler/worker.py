"""The process that has libtpu: reads (topology, StableHLO, options) from a pipe, compiles, and writes what came of it.

Only this process loads libtpu, so that nothing of it stays in the user's: neither its threads and log handlers, nor the
lock file that makes a second user of it fail. Run as ``python -m torus.twin.compiler.worker DESCRIPTOR``.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

Answer = dict[str, Any]
"""``{"refused": words}``, or the fields of `torus.twin.compiler.compiled.Compiled`; where there is no program, what the
keys of all programs of the topology share.
"""


def serve(pipe: Connection) -> None:
    """Answer requests until the other end closes."""
    while True:
        try:
            topology, stablehlo, options = pipe.recv()
        except EOFError:
            return
        pipe.send(_answer(topology, stablehlo, options))


def _answer(topology: str, stablehlo: str | bytes | None, options: dict[str, Any]) -> Answer:
    from torus.runtime import jaxlib_adapter as adapter
    from torus.runtime import keys

    try:
        devices = _devices(topology)
        if stablehlo is None:
            return {"environment": keys.environment(devices[0])}
        started = time.perf_counter()
        executable = adapter.compile_ahead(stablehlo, devices, options)
        seconds = time.perf_counter() - started
        return {
            "memory": adapter.memory_analysis(executable),
            "cost": adapter.cost_of(executable),
            "seconds": seconds,
            "hlo": adapter.optimized_hlo(executable),
            "serialized": adapter.serialize(executable),
        }
    except Exception as error:
        return {"refused": str(error)}


@functools.cache
def _devices(topology: str) -> list[Any]:
    from torus.runtime import jaxlib_adapter as adapter

    return adapter.tpu_topology(topology)


def _end_with(parent: int) -> None:
    """End this process when its parent has ended: a compile of minutes that nobody waits for."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    serve(Connection(int(sys.argv[1])))
