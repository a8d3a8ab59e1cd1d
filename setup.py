"""Builds the native core, torus._C. Everything else about the package is in pyproject.toml."""

import os
from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

# Their own level of optimisation comes last, and so wins: reports then name functions and lines.
SANITIZERS = {
    "address": ["-fsanitize=address", "-fno-omit-frame-pointer", "-O1", "-g1"],
    "thread": ["-fsanitize=thread", "-fno-omit-frame-pointer", "-O1", "-g1"],
}
sanitizer = SANITIZERS.get(os.environ.get("TORUS_SANITIZE", ""), [])


def sources() -> list[str]:
    """The files to compile. With TORUS_BUILD_UNITS=n they are taken together into n, each of which reads PyTorch's
    headers, most of the work, once: quicker where everything is compiled, slower where one file has changed.
    """
    files = sorted(Path("csrc").glob("*.cpp"))
    count = int(os.environ.get("TORUS_BUILD_UNITS", "0"))
    if not count:
        return [str(file) for file in files]
    units: list[list[Path]] = [[] for _ in range(count)]
    for file in sorted(files, key=lambda file: -file.stat().st_size):
        min(units, key=lambda unit: sum(other.stat().st_size for other in unit)).append(file)
    return [_unit(Path(f"build/units/unit{index}.cpp"), unit) for index, unit in enumerate(units)]


def _unit(path: Path, files: list[Path]) -> str:
    text = "".join(f'#include "{file.resolve()}"\n' for file in sorted(files))
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return str(path)


setup(
    ext_modules=[
        CppExtension(
            "torus._C",
            sources(),
            extra_compile_args=[
                "-std=c++20",
                "-O2",
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",
                "-fvisibility=hidden",
                "-g0",
                *sanitizer,
            ],
            extra_link_args=sanitizer,
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
