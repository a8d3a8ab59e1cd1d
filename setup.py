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

setup(
    ext_modules=[
        CppExtension(
            "torus._C",
            sorted(str(p) for p in Path("csrc").glob("*.cpp")),
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
