# Every target works from a fresh clone: the first one that needs it makes .venv and builds the extension.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup venv demo test test-fast test-conformance test-captum test-cpp test-asan test-tsan lint format bench clean distclean

VENV ?= .venv
PYTHON ?= python3
# Processes for pytest; one thread each, since the tests use small tensors.
JOBS ?= $(shell n=$$(nproc); echo $$((n < 8 ? n : 8)))
PYTEST_ARGS ?=
DEMO_ARGS ?=
# Parts of test-conformance: ops that a regular expression finds, one of several shards.
ONLY ?=
SHARD ?= 1/1

PY := $(VENV)/bin/python
# Bytecode is written when a module is first imported; for all modules beforehand it is half of the time of set-up.
PIP_INSTALL := $(PY) -m pip --disable-pip-version-check install -q --no-compile
PINS := -c requirements/constraints.txt
EXTRAS := dev,demo
TESTS := OMP_NUM_THREADS=1 $(PY) -m pytest -q

INSTALLED := $(VENV)/.stamp-dependencies
BUILT := $(VENV)/.stamp-build
CPP := $(wildcard csrc/*.cpp csrc/*.h tests/cpp/*.cpp tests/cpp/*.h)
C := $(wildcard src/torus/bundle/c/*.[ch] tests/bundle/*.c)

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

setup: $(BUILT) ## make .venv, install the pinned dependencies, build the extension (instant when nothing changed)

venv: setup ## the same as setup

# torch comes first and alone: the extension is built against it, and nothing after may replace it.
$(INSTALLED): requirements/constraints.txt pyproject.toml requirements/list_extras.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "torus needs Python 3.11 or newer; set PYTHON=...")'
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) $(PINS) setuptools wheel numpy
	$(PIP_INSTALL) $(PINS) torch==2.13.0
	$(PIP_INSTALL) $(PINS) jax==0.10.2 jaxlib==0.10.2
	$(PY) requirements/list_extras.py $(EXTRAS) > $(VENV)/requirements.txt
	$(PIP_INSTALL) $(PINS) -r $(VENV)/requirements.txt
	touch $@

$(BUILT): $(INSTALLED) setup.py $(wildcard csrc/*)
	$(PIP_INSTALL) --no-build-isolation --no-deps -e .
	touch $@

demo: setup ## explain why sentences are similar, on the device, and write an HTML report
	$(PY) examples/explain_sentences.py $(DEMO_ARGS)

test: setup ## the whole test suite
	$(TESTS) -n $(JOBS) $(PYTEST_ARGS)

test-fast: setup ## the tests that are not marked slow (under five minutes)
	$(TESTS) -n $(JOBS) -m "not slow" $(PYTEST_ARGS)

test-conformance: setup ## PyTorch's operator database against the device and the TPU compiler: hours; ONLY=regex and SHARD=1/4 take parts
	TORUS_CONFORMANCE=full TORUS_CONFORMANCE_ONLY='$(ONLY)' TORUS_CONFORMANCE_SHARD='$(SHARD)' TORUS_CPU_FALLBACK=silent \
	  $(TESTS) -n $(JOBS) $(PYTEST_ARGS) tests/conformance
	TORUS_TPU_PROGRAMS=1 $(TESTS) -n $(JOBS) $(PYTEST_ARGS) tests/lowering

test-captum: setup ## Captum's own configurations in every mode, and the matrix of its methods: an hour; ONLY and SHARD as above
	TORUS_CAPTUM=full TORUS_CAPTUM_ONLY='$(ONLY)' TORUS_CAPTUM_SHARD='$(SHARD)' $(TESTS) -n $(JOBS) $(PYTEST_ARGS) tests/explain/captum tests/examples/test_case_study.py
	OMP_NUM_THREADS=1 $(PY) -m torus.explain.matrix --only '$(ONLY)' --json reports/captum.json --html reports/captum.html

test-cpp: setup ## unit tests of the C++ core, below Python
	bash scripts/test_cpp.sh

test-asan: setup ## fast tests with the extension built under the address sanitizer
	bash scripts/sanitize.sh address $(PYTEST_ARGS)

test-tsan: setup ## threading tests with the extension built under the thread sanitizer
	bash scripts/sanitize.sh thread $(PYTEST_ARGS)

lint: $(INSTALLED) ## ruff, mypy, clang-format, cppcheck
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/clang-format --dry-run -Werror $(CPP) $(C)
	$(VENV)/bin/cppcheck --quiet --error-exitcode=1 --std=c++20 --language=c++ --inline-suppr -j $(JOBS) \
	  --enable=warning,performance,portability --suppressions-list=.cppcheck/suppressions.txt --library=.cppcheck/torch.cfg $(CPP)

format: $(INSTALLED) ## rewrite Python and C++ sources in the project's style
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/clang-format -i $(CPP) $(C)

bench: setup ## benchmarks against CPU eager and whatever else is installed, measured side by side
	OMP_NUM_THREADS=1 $(PY) -m benchmarks $(BENCH_ARGS)

clean: ## remove builds, caches and reports; keep .venv
	rm -rf build dist reports src/*.egg-info .mypy_cache .ruff_cache .pytest_cache
	find src -name '_C*.so' -delete
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
	rm -f $(BUILT)

distclean: clean ## remove .venv too
	rm -rf $(VENV)
