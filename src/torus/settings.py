"""Every setting of torus, in one table.

A setting is read from the environment each time it is asked for, so nothing is frozen at import. ``get("platform")``
and
``settings.platform`` are the same. ``python -m torus.settings`` prints the table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_UNITS = {
    "": 1,
    "b": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
_MOST_DEVICES = 127
"""Of one process: PyTorch's device index is a byte."""
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class _Invalid(Exception):
    """What a parser raises; its text says what it would have accepted."""


def _boolean(text: str) -> bool:
    if text.lower() in _TRUE + _FALSE:
        return text.lower() in _TRUE
    raise _Invalid("1, 0, true, false, yes, no, on or off")


def _choice(*accepted: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() in accepted:
            return text.lower()
        raise _Invalid(", ".join(accepted[:-1]) + " or " + accepted[-1])

    return parse


def _positive(text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise _Invalid("a whole number from 1 on")


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", text.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise _Invalid("a number of bytes such as 4GiB, 500MB or 1073741824")
    return int(float(match[1]) * _UNITS[match[2]])


def _some_bytes(text: str) -> int:
    if (size := _size(text)) > 0:
        return size
    raise _Invalid("a number of bytes from 1 on, such as 32GiB, 500MB or 1073741824")


def _slice(text: str) -> Any:
    from torus.twin.topology import Topology

    accepted = "a TPU slice such as v6e-4, v6e:2x2 or tpu7x-8"
    try:
        topology = Topology.parse(text)
    except ValueError as error:
        raise _Invalid(f"{accepted}: {error}") from None
    if topology.devices > _MOST_DEVICES:
        raise _Invalid(f"{accepted}, of at most {_MOST_DEVICES} devices (torus plan looks at larger ones)")
    return topology


def _simulated_devices() -> int:
    simulated = get("simulate")
    return 1 if simulated is None else int(simulated.devices)


def _simulated_memory() -> int | None:
    simulated = get("simulate")
    return None if simulated is None else int(simulated.chip.hbm_bytes)


def parse_size(text: str) -> int:
    """Bytes in a text such as 4GiB, 500MB or 1073741824. Raises ValueError, which says what is accepted."""
    try:
        return _size(text)
    except _Invalid as accepted:
        raise ValueError(str(accepted)) from None


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "").strip()
    return (Path(base) if base else Path("~/.cache").expanduser()) / "torus"


@dataclass(frozen=True)
class Setting:
    """One row: `name` in Python, `kind` for people, `default` (a value, or a function that finds it), where it is read
    and how.

    `variables` are environment variables in order of precedence; an empty one counts as not set.
    """

    name: str
    kind: str
    default: Any
    variables: tuple[str, ...]
    description: str
    parse: Callable[[str], Any]
    default_text: str | None = None

    def get(self) -> Any:
        """The value now. Raises ValueError, naming the variable, its value and what is accepted."""
        for variable in self.variables:
            text = os.environ.get(variable, "").strip()
            if not text:
                continue
            try:
                return self.parse(text)
            except _Invalid as accepted:
                raise ValueError(f"{variable}={text!r} is not understood; it accepts {accepted}") from None
        return self.default() if callable(self.default) else self.default


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "platform",
        "cpu | cuda | tpu",
        None,
        ("TORUS_PLATFORM",),
        "Runs on this platform, and raises when it is not there.",
        _choice("cpu", "cuda", "tpu"),
        "TPU, else GPU, else CPU",
    ),
    Setting(
        "device_count",
        "int",
        _simulated_devices,
        ("TORUS_DEVICE_COUNT",),
        "Number of virtual devices on the host platform.",
        _positive,
        "1, or those of `simulate`",
    ),
    Setting(
        "simulate",
        "slice",
        None,
        ("TORUS_SIMULATE",),
        "The host stands in for a TPU slice (v6e-4, v6e:2x2, tpu7x-8): as many devices, of that name and memory, and "
        "float32 products in the passes of its matrix unit where PyTorch allows them. See docs/twin-memory.md.",
        _slice,
    ),
    Setting(
        "hbm_limit",
        "size",
        _simulated_memory,
        ("TORUS_HBM_LIMIT",),
        "The most memory that each device may hold (32GiB): what needs more raises torch.OutOfMemoryError, as on a "
        "chip of that size. See docs/twin-memory.md.",
        _some_bytes,
        "none, or that of `simulate`",
    ),
    Setting(
        "cpu_fallback",
        "warn | silent | error",
        "warn",
        ("TORUS_CPU_FALLBACK",),
        "What an operator without a rule does: runs on CPU with one warning, runs on CPU, or raises.",
        _choice("warn", "silent", "error"),
    ),
    Setting(
        "defer_and_fuse",
        "bool",
        False,
        ("TORCH_TPU_DEFER_AND_FUSE",),
        "Starts in the mode that records operators and runs them fused.",
        _boolean,
    ),
    Setting(
        "fusing",
        "background | foreground | never",
        "background",
        ("TORUS_FUSING",),
        "When recorded operators are compiled into fused programs: while they run one by one, at once, or never.",
        _choice("background", "foreground", "never"),
    ),
    Setting(
        "compile_fallback",
        "bool",
        True,
        ("TORUS_COMPILE_FALLBACK",),
        "A graph of torch.compile that cannot be compiled runs op by op, with one warning; otherwise it raises.",
        _boolean,
    ),
    Setting(
        "compile_dump",
        "path",
        None,
        ("TORUS_COMPILE_DUMP",),
        "A folder for the texts of what torch.compile makes: ATen graph, StableHLO, optimized HLO, cost.",
        lambda text: Path(text).expanduser(),
        "none",
    ),
    Setting(
        "launch_blocking",
        "bool",
        False,
        ("TORCH_TPU_LAUNCH_BLOCKING", "TPU_LAUNCH_BLOCKING"),
        "Starts in the debug mode: each operator waits for its result.",
        _boolean,
    ),
    Setting(
        "debug_checks",
        "bool",
        False,
        ("TORCH_TPU_ENABLE_DEBUG_CHECKS",),
        "Extra checks, such as index bounds on accelerators.",
        _boolean,
    ),
    Setting(
        "program_cache",
        "name | path | disabled",
        "default",
        ("TORCH_TPU_TIER2_COMPILATION_CACHE",),
        "The disk cache of compiled programs: a name under cache_dir, a path (it has a slash), or disabled.",
        str,
    ),
    Setting(
        "prefetch",
        "bool",
        True,
        ("TORUS_PREFETCH",),
        "Loads the programs that the script's last run used, in the background, as soon as the device is used.",
        _boolean,
    ),
    Setting(
        "cache_dir",
        "path",
        _cache_directory,
        ("TORUS_CACHE_DIR",),
        "The directory that holds what torus keeps between processes.",
        _path,
        "$XDG_CACHE_HOME/torus or ~/.cache/torus",
    ),
    Setting(
        "cache_size",
        "size",
        4 * 2**30,
        ("TORUS_CACHE_SIZE",),
        "The most that the disk cache of compiled programs may hold; the least recently used are removed.",
        _size,
        "4GiB",
    ),
    Setting(
        "shared_cache",
        "path | URL",
        None,
        ("TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT",),
        "A store of compiled programs behind the disk cache, for several machines: a folder, or any URL that fsspec "
        "opens (gs://, s3://). Its programs are run as they are: name only one that you trust.",
        lambda text: text if "://" in text else str(_path(text)),
    ),
    Setting(
        "shared_cache_writes",
        "bool",
        True,
        ("TORUS_SHARED_CACHE_WRITES",),
        "Whether new programs are written to the shared store.",
        _boolean,
    ),
    Setting(
        "cache_only",
        "bool",
        False,
        ("TORUS_CACHE_ONLY",),
        "A program that is in no cache raises instead of being compiled.",
        _boolean,
    ),
    Setting(
        "dump_misses",
        "path",
        None,
        ("TORUS_DUMP_MISSES",),
        "A folder that each program which is in no cache is written to, with the reason.",
        _path,
    ),
    Setting(
        "warm_topology",
        "topology",
        None,
        ("TORUS_WARM_TOPOLOGY",),
        "A TPU topology such as v6e:1x1 that programs are compiled for and kept for, while they run on the host; "
        "`torus cache warm --topology` sets it.",
        str,
    ),
    Setting(
        "cache_report",
        "path",
        None,
        ("TORUS_CACHE_REPORT",),
        "A file that the process writes at its end: what was found in the cache and what was compiled.",
        _path,
    ),
)

_BY_NAME = {setting.name: setting for setting in SETTINGS}


def get(name: str) -> Any:
    """The value of a setting now, in the type of its row. Raises KeyError for an unknown name, ValueError for a bad
    value.
    """
    try:
        return _BY_NAME[name].get()
    except KeyError:
        raise KeyError(f"no setting {name!r}; there are {', '.join(_BY_NAME)}") from None


def __getattr__(name: str) -> Any:
    if name in _BY_NAME:
        return _BY_NAME[name].get()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def program_cache_path() -> Path | None:
    """The directory of the disk cache of compiled programs; None where it is disabled."""
    text = get("program_cache")
    if text.lower() == "disabled":
        return None
    if "/" in text or text.startswith("~"):
        return Path(text).expanduser()
    return Path(get("cache_dir")) / text


def table() -> str:
    """The settings as a Markdown table."""
    rows = ["| setting | environment variable | accepts | default | meaning |", "|---|---|---|---|---|"]
    for s in SETTINGS:
        default = s.default_text or str(s.default).lower()
        variables = ", ".join(f"`{v}`" for v in s.variables)
        rows.append(
            f"| `{s.name}` | {variables} | {s.kind.replace('|', chr(92) + '|')} | {default} | {s.description} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
