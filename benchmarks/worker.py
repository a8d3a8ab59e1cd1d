"""A process that measures, and the pipe to it: one line of JSON for each request and for each answer.

A request names a function, ``"benchmarks.ops:sample"``, and its arguments; the function gets the `Place` first. All
workers of a run live at once and are asked in turn, so that noise of the machine hits all alike.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from benchmarks import places

ROOT = Path(__file__).parents[1]
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class NotInstalled(Exception):
    """The place needs a package that its interpreter does not have."""


class Failed(Exception):
    """A worker raised, or died; the text says what and where."""

    @property
    def brief(self) -> str:
        """The last line, which names the error."""
        return "cannot be used: " + (str(self).strip().splitlines() or ["no reason given"])[-1]


class Worker:
    """A process in `place` (None: one that loads nothing), run by the interpreter `python`.

    Raises NotInstalled or Failed when the place cannot be entered. A context manager; leaving it ends the process.
    """

    def __init__(
        self, place: str | None, python: str = sys.executable, variables: Mapping[str, str] | None = None
    ) -> None:
        self.place = place
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=_environment(place) | dict(variables or {}),
        )
        try:
            self.description: dict[str, Any] = self._ask({"enter": place})
        except BaseException:
            self.close()
            raise

    def call(self, function: str, **arguments: Any) -> Any:
        """The result of ``"module:function"`` in the worker. Raises Failed."""
        return self._ask({"function": function, "arguments": arguments})

    def close(self) -> None:
        """End the process and wait for its end."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it died with a request in the pipe
                self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            name = self.place or "a fresh process"
            raise Failed(f"{name} died with exit status {self._process.wait(timeout=60)}")
        answer = json.loads(line)
        if "not_installed" in answer:
            raise NotInstalled(answer["not_installed"])
        if "error" in answer:
            raise Failed(answer["error"])
        return answer["result"]


def in_turn(workers: Sequence[Worker], rounds: int, function: str, **arguments: Any) -> dict[str, list[Any]]:
    """`rounds` results of each worker, one round after the other, each round starting with another worker."""
    results: dict[str, list[Any]] = {worker.place or "": [] for worker in workers}
    for start in range(rounds):
        for i in range(len(workers)):
            worker = workers[(start + i) % len(workers)]
            results[worker.place or ""].append(worker.call(function, **arguments))
    return results


def _environment(place: str | None) -> dict[str, str]:
    """This process's variables, but: strict eager; the device only where it is asked for; one thread or the default."""
    kept = {name: value for name, value in os.environ.items() if name not in THREAD_VARIABLES}
    threads = {} if place == "cpu_threads" else dict.fromkeys(THREAD_VARIABLES, "1")
    fixed = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "TORCH_TPU_DEFER_AND_FUSE": "0", "TORCH_TPU_LAUNCH_BLOCKING": "0"}
    return kept | threads | fixed


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer requests until there are no more."""
    place: places.Place | None = None
    for line in requests:
        request = json.loads(line)
        try:
            answer: dict[str, Any]
            if "enter" in request:
                place = places.enter(request["enter"]) if request["enter"] else None
                answer = {"result": places.describe(place)}
            else:
                module, name = request["function"].split(":")
                answer = {"result": getattr(importlib.import_module(module), name)(place, **request["arguments"])}
        except ModuleNotFoundError as error:
            answer = {"not_installed": str(error)} if "enter" in request else {"error": traceback.format_exc()}
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


def main() -> None:
    """Serve on standard input and output; what libraries print goes to standard error instead."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
