#!/usr/bin/env bash
# Builds the native core with a sanitizer, apart from the ordinary build, and runs fast tests on it:
#
#   scripts/sanitize.sh address|thread [pytest arguments instead of the usual tests]
#
# Fails when a test fails or when the sanitizer has anything to report. Reports stay in build/asan or build/tsan.
# PYTHON: the interpreter to use. MAX_JOBS: compilers at a time.
set -euo pipefail
cd "$(dirname "$0")/.."

kind=${1:-}
case $kind in
  address) build=build/asan library=libasan.so ;;
  thread) build=build/tsan library=libtsan.so ;;
  *)
    echo "usage: $0 address|thread [pytest arguments]" >&2
    exit 2
    ;;
esac
shift
PYTHON=$(realpath -s "${PYTHON:-.venv/bin/python}")
CXX=${CXX:-c++}
PATH=$(dirname "$PYTHON"):$PATH # ninja, which compiles only what changed

# The extension, and a tree of links to the sources with it in the place of the ordinary one. The tests run there, so
# that processes that they start find it too.
TORUS_SANITIZE=$kind "$PYTHON" setup.py -q build_ext --build-temp "$build/temp" --build-lib "$build/lib"
tree=$PWD/$build/tree
rm -rf "$tree"
mkdir -p "$tree/src/torus"
ln -s "$PWD"/{tests,examples,pyproject.toml} "$tree/"
for source in src/torus/*; do
  case $source in
    *_C.*.so | *__pycache__) ;;
    *) ln -s "$PWD/$source" "$tree/src/torus/" ;;
  esac
done
ln -s "$PWD/$build"/lib/torus/_C.*.so "$tree/src/torus/"

rm -f "$build"/report.*
common="log_path=$PWD/$build/report:exitcode=66:print_suppressions=0"
# Leaks are not looked for: globals of the core, the interpreter and the compiler live as long as the process, by
# design.
export ASAN_OPTIONS="$common:detect_leaks=0:detect_stack_use_after_return=1"
# PyTorch, the runtime and the interpreter are not instrumented: what they do to memory, and how they order it, is
# partly out of sight. So only accesses made by our own code count, and what is known of the order that theirs gives it
# is in the suppressions.
suppressions=$PWD/scripts/tsan_suppressions.txt
export TSAN_OPTIONS="$common:ignore_noninstrumented_modules=1:history_size=4:suppressions=$suppressions"

# This compiler's thread sanitizer knows few places for the program in memory: no random ones.
launch=()
[[ $kind == thread ]] && launch=(setarch "$(uname -m)" -R)

status=0
if (($# == 0)); then
  echo "== the C++ tests"
  SANITIZER=$kind PYTHON=$PYTHON "${launch[@]}" bash scripts/test_cpp.sh || status=1
fi

if (($# > 0)); then
  tests=("$@")
elif [[ $kind == thread ]]; then
  tests=(tests/eager/test_{threads,fusing_threads,autograd_threads,fusing_compiles}.py tests/device/test_{random,memory,events}.py)
else
  # Most tests of what a new process does are slow here and have nothing to do with memory; forking and exiting have.
  mapfile -t tests < <(grep -L "device.process import" tests/device/test_*.py)
  tests+=(tests/device/test_forking.py tests/eager tests/compile/test_{aliasing,cpu_tensors,errors,random}.py)
fi

# The sanitizer must come before all else in a program that was not built with it, and the C++ library with it, or it
# would not see exceptions. PYTHONMALLOC=malloc shows it the objects of the interpreter.
echo "== ${tests[*]}"
(
  export TORUS_CACHE_DIR=${TORUS_CACHE_DIR:-$PWD/.cache/torus}
  cd "$tree"
  env LD_PRELOAD="$("$CXX" -print-file-name=$library) $("$CXX" -print-file-name=libstdc++.so.6)" \
    PYTHONPATH="$tree/src" PYTHONMALLOC=malloc OMP_NUM_THREADS=1 "${launch[@]}" "$PYTHON" -c '
import sys
import pytest, torch
from torus import _C
assert _C.__file__.startswith(sys.argv[1]), _C.__file__
sys.exit(pytest.main(sys.argv[2:]))
' "$tree" -q -m "not slow" -p no:cacheprovider "${tests[@]}"
) || status=1

if compgen -G "$build/report.*" > /dev/null; then
  cat "$build"/report.*
  echo "the $kind sanitizer reported the above: $build/report.*"
  status=1
fi
exit $status
