"""The TPU compiler without a TPU: a process of its own with libtpu, a cache of what it made, and the exact estimate."""

from __future__ import annotations

from torus.twin.compiler.compiled import Compiled as Compiled
from torus.twin.compiler.compiler import QUICK as QUICK
from torus.twin.compiler.compiler import Compiler as Compiler
from torus.twin.compiler.errors import CompileError as CompileError
from torus.twin.compiler.errors import CompilerDied as CompilerDied
from torus.twin.compiler.errors import CompilerMissing as CompilerMissing
from torus.twin.compiler.errors import CompileTimeout as CompileTimeout
from torus.twin.compiler.errors import DoesNotFit as DoesNotFit
from torus.twin.compiler.exact import estimate_of as estimate_of
from torus.twin.compiler.exact import exact as exact
