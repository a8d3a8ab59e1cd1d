"""The compiler's process as seen from here: started when needed, given one program at a time, ended by a time-out."""

from __future__ import annotations

import atexit
import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
from multiprocessing.connection import Connection, Pipe
from typing import IO, Any

from torus.runtime import forks
from torus.twin.compiler.errors import CompilerDied, CompilerMissing, CompileTimeout
from torus.twin.compiler.worker import Answer

_ENVIRONMENT = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # beside whoever else has libtpu, a run on a chip among them
    "TPU_SKIP_MDS_QUERY": "1",  # no question to the cloud about which machine this is
    "TPU_LOG_DIR": "disabled",  # no log files beside the one that is kept here for errors
    "PYTHONSAFEPATH": "1",  # modules are where this process found them, not in its current directory
}
_TAIL = 4000


class Service:
    """One process for the compiles of this one. Safe from several threads, which take turns."""

    def __init__(self) -> None:
        forks.now_and_in_children(self._renew)
        atexit.register(self.stop)

    def _renew(self) -> None:
        """A forked child has no part in its parent's compiler."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._log: IO[bytes] | None = None

    def ask(
        self, topology: str, stablehlo: str | bytes | None, options: dict[str, Any], timeout: float | None
    ) -> Answer:
        """What the worker answers. Raises CompileTimeout, CompilerDied and CompilerMissing."""
        with self._lock:
            pipe = self._started()
            try:
                pipe.send((topology, stablehlo, options))
                if not pipe.poll(timeout):
                    raise CompileTimeout(f"the TPU compiler took longer than {timeout:g} s and was stopped")
                answer: Answer = pipe.recv()
            except (EOFError, OSError):
                raise CompilerDied(f"the TPU compiler died: {self._last_words()}") from None
            except BaseException:  # Ctrl-C too: nothing else ends a compile
                self._kill()
                raise
            return answer

    def stop(self) -> None:
        """End the process, in the middle of a compile too."""
        self._kill()

    def _started(self) -> Connection:
        if self._pipe is not None and self._process is not None and self._process.poll() is None:
            return self._pipe
        self._kill()
        check_installed()
        self._pipe, theirs = Pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (it is open as long as the process)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "torus.twin.compiler.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is this process's to handle
            env=os.environ | _ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        theirs.close()
        return self._pipe

    def _last_words(self) -> str:
        if self._process is not None:
            self._process.wait(10)
        text = _read_end(self._log)
        self._kill()
        return text or "it said nothing"

    def _kill(self) -> None:
        process, pipe, log = self._process, self._pipe, self._log
        self._process = self._pipe = self._log = None
        if process is not None:
            process.kill()
            process.wait()
        for each in (pipe, log):
            if each is not None:
                each.close()


def check_installed() -> None:
    """Raise CompilerMissing, which says what to install, where there is no libtpu."""
    if importlib.util.find_spec("libtpu") is None:
        raise CompilerMissing(
            "compiling for a TPU needs libtpu, which has the compiler; no TPU is needed: pip install 'torus[tpu]'"
        )


def _read_end(log: IO[bytes] | None) -> str:
    if log is None:
        return ""
    log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL))
    return log.read().decode(errors="replace").strip()


service = Service()
"""The one of this process."""
