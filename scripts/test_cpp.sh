#!/usr/bin/env bash
# Builds the tests of the C++ core with the sources under test into one program, and runs it; an argument picks tests by
# a part of their name. Only what changed is compiled again. The last line says how many passed and failed.
#
# PYTHON: the interpreter whose PyTorch is built against. MAX_JOBS: compilers at a time. SANITIZER: address or thread.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-.venv/bin/python}
export SANITIZER=${SANITIZER:-}
export BUILD=build/cpp${SANITIZER:+-$SANITIZER}
export CXX=${CXX:-c++}

# What can be tested below the dispatcher; the rest of the core needs the device registered, and is tested from Python.
UNDER_TEST=(device generator op origins program runtime_seam segments signature storage trace value)
sources=(tests/cpp/*.cpp)
for name in "${UNDER_TEST[@]}"; do
  sources+=("csrc/$name.cpp")
done

mkdir -p "$BUILD"
"$PYTHON" - "$BUILD" "$SANITIZER" << 'PYTHON_SCRIPT'
"""Writes the options of the compiler and of the linker where they are not what they were."""
import sys
import sysconfig
from pathlib import Path

from torch.utils.cpp_extension import include_paths, library_paths

build, sanitizer = Path(sys.argv[1]), sys.argv[2]
sanitize = [f"-fsanitize={sanitizer}", "-fno-omit-frame-pointer", "-g1"] if sanitizer else ["-g0"]
# Headers that are not ours are "system" ones: no warnings about them, and no dependence on them.
include = [f"-isystem{path}" for path in (*include_paths(), sysconfig.get_path("include"))]
warnings = ["-Wall", "-Wextra", "-Wno-unused-parameter"]
compile_options = ["-std=c++20", "-O1" if sanitizer else "-O0", "-Icsrc", "-MMD", *warnings, *include, *sanitize]
libraries = [*library_paths(), sysconfig.get_config_var("LIBDIR")]
python = "-lpython" + sysconfig.get_config_var("LDVERSION")
link_options = [f"-L{path} -Wl,-rpath,{path}" for path in libraries]
torch = ["-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10"]
link_options += ["-Wl,--no-as-needed", *torch, python, "-lpthread", *sanitize]
for name, options in (("compile", compile_options), ("link", link_options)):
    file, text = build / f"{name}.options", "\n".join(options) + "\n"
    if not file.exists() or file.read_text() != text:
        file.write_text(text)
PYTHON_SCRIPT

object_of() {
  local name=${1//\//_}
  echo "$BUILD/${name%.cpp}.o"
}

# An object is current when nothing that it was made from is newer than the moment at which its compilation began.
is_current() {
  local object dependence
  object=$(object_of "$1")
  [[ -f $object && -f ${object%.o}.d && ! $BUILD/compile.options -nt $object.began ]] || return 1
  for dependence in $(sed -e 's/^[^:]*://' -e 's/\\$//' "${object%.o}.d"); do
    [[ -e $dependence && ! $dependence -nt $object.began ]] || return 1
  done
}

compile() {
  local object
  object=$(object_of "$1")
  echo "compiling $1"
  rm -f "$object"
  touch "$object.began"
  "$CXX" "@$BUILD/compile.options" -c "$1" -o "$object"
}
export -f object_of compile

objects=()
stale=()
for source in "${sources[@]}"; do
  objects+=("$(object_of "$source")")
  is_current "$source" || stale+=("$source")
done
if ((${#stale[@]})); then
  printf '%s\0' "${stale[@]}" | xargs -0 -n 1 -P "${MAX_JOBS:-$(nproc)}" bash -c 'set -e; compile "$1"' _
fi

program=$BUILD/tests
# Of all that is linked, the list itself included: a source that is gone must go from the program too.
printf '%s\n' "${objects[@]}" > "$BUILD/objects.new"
if ((${#stale[@]})) || [[ ! -x $program || $BUILD/link.options -nt $program ]] ||
  ! cmp -s "$BUILD/objects.new" "$BUILD/objects"; then
  echo "linking $program"
  rm -f "$program"
  "$CXX" -o "$program" "${objects[@]}" "@$BUILD/link.options"
  mv "$BUILD/objects.new" "$BUILD/objects"
fi

# The embedded interpreter finds its standard library without being started from its own directory.
PYTHONHOME=$("$PYTHON" -c 'import sys; print(sys.base_prefix)') exec "$program" "$@"
