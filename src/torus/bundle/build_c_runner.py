"""Builds the C runner: ``python -m torus.bundle.build_c_runner [directory]`` puts libtorus_bundle.so and torus_bundle.h
there.

It needs a C compiler (``$CC``, else cc) and a Python that comes as a shared library.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

SOURCES = Path(__file__).parent / "c"
LIBRARY = "libtorus_bundle.so"


def build(directory: Path) -> Path:
    """Compile the runner for this interpreter into `directory`, with its header; the path of the library.

    Raises RuntimeError where this Python has no shared library, or the compiler fails.
    """
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / LIBRARY
    done = subprocess.run(_command(library), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the C runner does not build: {done.stderr.strip()}")
    shutil.copy(SOURCES / "torus_bundle.h", directory)
    return library


def flags(directory: Path) -> list[str]:
    """What a C program that uses the runner in `directory` adds to its compiler's command."""
    place = str(directory.resolve())
    return [f"-I{place}", f"-L{place}", "-ltorus_bundle", f"-Wl,-rpath,{place}"]


def _command(library: Path) -> list[str]:
    python = _libpython()
    defines = {"TORUS_PYTHON": sys.executable, "TORUS_LIBPYTHON": python.name}
    return [
        *shlex.split(os.environ.get("CC", "cc")),
        *("-std=c11", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-pthread"),
        *(f'-D{name}="{value}"' for name, value in defines.items()),
        f"-I{sysconfig.get_path('include')}",
        str(SOURCES / "torus_bundle.c"),
        *("-o", str(library), str(python), f"-Wl,-rpath,{python.parent}", "-ldl"),
    ]


def _libpython() -> Path:
    name = sysconfig.get_config_var("INSTSONAME") or ""
    directory = Path(sysconfig.get_config_var("LIBDIR") or "")
    places = (directory, directory / (sysconfig.get_config_var("MULTIARCH") or ""))
    found = next((place / name for place in places if ".so" in name and (place / name).is_file()), None)
    if found is None:
        raise RuntimeError(
            f"{sys.executable} does not come as a shared library (libpython), which the C runner needs: use a Python "
            "that was configured with --enable-shared, or install your system's package of it"
        )
    return found


def main(arguments: list[str]) -> int:
    """The command line."""
    if len(arguments) > 1 or any(a.startswith("-") for a in arguments):
        print(__doc__)
        return 2
    directory = Path(arguments[0] if arguments else ".")
    try:
        print(build(directory))
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"cc program.c {shlex.join(flags(directory))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
