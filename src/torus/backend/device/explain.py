"""Why recorded ops ran when they did: ``torch.tpu.explain``."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, overload

from torus import _C
from torus.backend.device import counting, modes
from torus.backend.device.advice import Advice, advise
from torus.backend.device.amounts import count, show_bytes, show_seconds
from torus.backend.device.devices import synchronize
from torus.backend.eager import report as records
from torus.backend.eager.report import Flush, shorten

_VERSION = 1
_HEAD_ROWS, _TAIL_ROWS = 40, 20
_WIDTH = 110

STRICT_NOTE = (
    "Nothing is recorded in this mode: each op runs at once, as a program of its own. To record and fuse ops, set "
    "torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_AND_FUSE, or TORCH_TPU_DEFER_AND_FUSE=1 in the environment."
)
_EMPTY_NOTE = (
    "No recorded ops ran in this block. They run when a value is needed, or at torch.tpu.synchronize(); "
    "torch.tpu.show(tensor) shows what is pending."
)
NO_ADVICE = "Nothing: no line of the program stands out."


@dataclass(frozen=True)
class _Snapshot:
    """A moment: seconds of the monotonic clock, and what was counted until then."""

    seconds: float = 0.0
    counters: dict[str, int] = field(default_factory=dict)
    fallbacks: dict[str, int] = field(default_factory=dict)

    @classmethod
    def now(cls) -> _Snapshot:
        return cls(time.monotonic(), counting.counters(), counting.fallbacks())


class Report:
    """What `explain` found out: ``print(report)`` shows it, `html` draws it, `to_dict` and `json` are for programs.

    `flushes` has one record for each run of recorded ops, oldest first. `result` is what the explained function
    returned. `mode` and `fusing` are the value of ``torch.tpu.eager_mode``, and ``torch.tpu.fusing``, at the begin.

    As a context manager, it is of what happens inside the block. It runs nothing: what is pending at the end of the
    block stays pending, and is not in the report.
    """

    def __init__(self) -> None:
        self.flushes: list[Flush] = []
        self.result: Any = None
        self.mode: str = modes.get_mode().value
        self.fusing: str = modes.get_fusing()
        self._recorded = False
        self._begin: _Snapshot | None = None
        self._end: _Snapshot | None = None

    def __enter__(self) -> Report:
        if self._begin is not None:
            raise RuntimeError("a report is of one block; call torch.tpu.explain() again for another one")
        self.mode, self.fusing = modes.get_mode().value, modes.get_fusing()
        self._recorded = modes.get_mode() is modes.EagerMode.DEFER_AND_FUSE
        self.flushes = records.listen()
        self._begin = _Snapshot.now()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end = _Snapshot.now()
        self._recorded = self.recorded
        records.stop(self.flushes)

    @property
    def recorded(self) -> bool:
        """Whether ops were recorded in the block; False in the strict modes."""
        now = self._end is None and modes.get_mode() is modes.EagerMode.DEFER_AND_FUSE
        return self._recorded or now or bool(self.flushes)

    @property
    def seconds(self) -> float:
        """Time between the begin and the end of the block, or until now."""
        return self._now().seconds - self._start().seconds

    @property
    def counters(self) -> dict[str, int]:
        """What ``torch.tpu.counters()`` counted in the block, in every mode."""
        return _difference(self._start().counters, self._now().counters)

    @property
    def fallbacks(self) -> dict[str, int]:
        """How often each op without a lowering ran on the CPU in the block."""
        return {op: n for op, n in _difference(self._start().fallbacks, self._now().fallbacks).items() if n}

    @property
    def advice(self) -> list[Advice]:
        """What to change, as far as the records show it; empty when nothing stands out."""
        return advise(list(self.flushes), self.fallbacks)

    @property
    def note(self) -> str:
        """Why there is no flush in the report; "" when there is one."""
        if self.flushes:
            return ""
        return _EMPTY_NOTE if self.recorded else STRICT_NOTE

    def __str__(self) -> str:
        return "\n\n".join(filter(None, [self._summary(), self._table(), self._counted(), self._what_to_change()]))

    def __repr__(self) -> str:
        return f"<torch.tpu.explain report: {count(len(self.flushes), 'flush')}; print it, or see .html() and .json()>"

    def to_dict(self) -> dict[str, Any]:
        """The report in plain lists, dictionaries, strings and numbers, which `from_dict` reads again.

        ``version`` (1), ``mode``, ``fusing``, ``recorded`` (whether the mode records), ``seconds`` (of the block),
        ``counters`` and ``fallbacks`` (differences over the block), ``flushes`` and ``advice`` (dictionaries with the
        fields of `Advice`). A flush has ``number`` (from 0 on), ``cause``, ``place`` (``"file:line in function"``),
        ``how``, ``origin``, ``ops`` and ``programs`` (counts), ``known``, ``compiles``, ``cache_hits``, ``fusing``,
        ``bytes_in``, ``bytes_out``, ``start`` and ``end`` (seconds since the begin of the block), ``seconds``, and
        ``segments``: a list of ``{"how": ..., "ops": [{"name": ..., "place": ...}]}``.

        The function's result is not in it.
        """
        begin = self._start().seconds
        return {
            "version": _VERSION,
            "mode": self.mode,
            "fusing": self.fusing,
            "recorded": self.recorded,
            "seconds": round(self.seconds, 9),
            "counters": self.counters,
            "fallbacks": self.fallbacks,
            "flushes": [{"number": i} | f.to_dict(begin) for i, f in enumerate(list(self.flushes))],
            "advice": [
                {"kind": a.kind, "place": a.place, "flushes": list(a.flushes), "text": a.text} for a in self.advice
            ],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Report:
        """The report that `to_dict` (or ``json.loads`` of `json`) gave. Raises ValueError for another version."""
        if values.get("version") != _VERSION:
            raise ValueError(f"expected a report of version {_VERSION}, got version {values.get('version')!r}")
        report = cls()
        report.mode, report.fusing, report._recorded = values["mode"], values["fusing"], values["recorded"]
        report.flushes = [Flush.from_dict(flush) for flush in values["flushes"]]
        report._begin = _Snapshot()
        report._end = _Snapshot(values["seconds"], dict(values["counters"]), dict(values["fallbacks"]))
        return report

    def json(self, indent: int | None = None) -> str:
        """`to_dict` as JSON text, indented by so many spaces."""
        return json.dumps(self.to_dict(), indent=indent)

    @overload
    def html(self, path: None = None) -> str: ...
    @overload
    def html(self, path: str | Path) -> Path: ...
    def html(self, path: str | Path | None = None) -> str | Path:
        """The report as one HTML page that needs nothing else: a timeline of the flushes, the table and the advice.

        Gives the page's text, or writes it to `path` and gives the path. Raises OSError when it cannot be written.
        """
        from torus.backend.device.explain_page import page

        text = page(self)
        if path is None:
            return text
        target = Path(path)
        target.write_text(text, encoding="utf-8")
        return target

    # The parts of the text

    def _start(self) -> _Snapshot:
        return self._begin or self._now()

    def _now(self) -> _Snapshot:
        return self._end or _Snapshot.now()

    def _summary(self) -> str:
        flushes = list(self.flushes)
        parts = [
            f"{count(len(flushes), 'flush')} of {count(sum(f.ops for f in flushes), 'op')} in "
            f"{count(sum(f.programs for f in flushes), 'program')}",
            f"{show_seconds(sum(f.seconds for f in flushes))} of {show_seconds(self.seconds)} in flushes",
            f"mode {self.mode}, fusing {self.fusing}",
        ]
        lines = ["; ".join(parts) if self.recorded else f"mode {self.mode}, {show_seconds(self.seconds)}"]
        return "\n".join(lines + textwrap.wrap(self.note, _WIDTH))

    def _table(self) -> str:
        flushes = list(self.flushes)
        if not flushes:
            return ""
        rows = [row(i, flush) for i, flush in enumerate(flushes)]
        hidden = len(rows) - _HEAD_ROWS - _TAIL_ROWS
        shown = rows[:_HEAD_ROWS] + rows[-_TAIL_ROWS:] if hidden > 0 else rows
        widths = [max(len(line[i]) for line in [HEADINGS, *shown, total(flushes)]) for i in range(len(HEADINGS))]
        lines = [_line(cells, widths) for cells in [HEADINGS, *shown, total(flushes)]]
        lines.insert(1, "-" * max(map(len, lines)))
        lines.insert(len(lines) - 1, lines[1])
        if hidden > 0:
            lines.insert(2 + _HEAD_ROWS, f"... {hidden} more, see .html() or .flushes ...")
        return "\n".join(lines)

    def _counted(self) -> str:
        text = "Counted in the block: " + ", ".join(f"{what} {n}" for what, n in self.counters.items())
        found = ", ".join(f"{op} {n}" for op, n in self.fallbacks.items())
        return text + (f"\nRan on the CPU: {found}" if found else "")

    def _what_to_change(self) -> str:
        if not self.flushes and not self.advice:
            return ""
        texts = [a.text for a in self.advice] or [NO_ADVICE]
        wrapped = [textwrap.fill(text, _WIDTH, initial_indent="- ", subsequent_indent="  ") for text in texts]
        return "\n".join(["What to change", *wrapped])


@overload
def explain() -> Report: ...
@overload
def explain(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Report: ...
def explain(fn: Callable[..., Any] | None = None, /, *args: Any, **kwargs: Any) -> Report:
    """When and why recorded ops ran, how, and what to change in the program.

    ``with torch.tpu.explain() as report:`` reports what happens in the block, in all threads. ``torch.tpu.explain(fn,
    ...)`` first runs what was recorded before, then calls ``fn(...)``, keeps what it returns in ``report.result``, and
    waits for all devices. Works in every mode; in the strict ones there are no flushes, but the counters of the block.

    Raises what `fn`, or an op that it recorded, raises; TypeError when `fn` cannot be called.
    """
    report = Report()
    if fn is None:
        if args or kwargs:
            raise TypeError("torch.tpu.explain(fn, ...) takes the function to call first")
        return report
    if not callable(fn):
        raise TypeError(f"expected a function to call, got {type(fn).__name__}")
    _C.flush(False)
    with report:
        report.result = fn(*args, **kwargs)
        _C.flush(False)
        for index in range(_C.device_count()):
            synchronize(index)
    return report


def _difference(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {name: max(0, count - before.get(name, 0)) for name, count in after.items()}


# Text for people


HEADINGS = ("#", "cause", "line", "ops", "programs", "how", "in", "out", "ms")
_TEXT_COLUMNS = (1, 2, 5)


def row(number: int, flush: Flush) -> tuple[str, ...]:
    """The cells of a flush under `HEADINGS`."""
    how = ", ".join(filter(None, (flush.how, flush.origin)))
    counts = (str(flush.ops), str(flush.programs), how, show_bytes(flush.bytes_in), show_bytes(flush.bytes_out))
    return (str(number), flush.cause, shorten(flush.place), *counts, f"{flush.seconds * 1e3:.2f}")


def total(flushes: Sequence[Flush]) -> tuple[str, ...]:
    """The cells of the last line."""
    sums = [sum(getattr(f, name) for f in flushes) for name in ("ops", "programs", "bytes_in", "bytes_out", "seconds")]
    return ("", "total", "", str(sums[0]), str(sums[1]), "", *map(show_bytes, sums[2:4]), f"{sums[4] * 1e3:.2f}")


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        cell.ljust(width) if i in _TEXT_COLUMNS else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths))
    )
    return "  ".join(padded).rstrip()
