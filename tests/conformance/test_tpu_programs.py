"""Whether the program of every rule compiles for a TPU, which need not be here: the sweep of `torus.twin.rules`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.suite import FULL, is_chosen

pytest.importorskip("libtpu", reason="libtpu, which has the TPU compiler, is not installed")
if not FULL:
    pytest.skip("tests/twin/test_rules.py has a sample; make test-conformance runs all", allow_module_level=True)

from torus.twin.compiler import Compiler
from torus.twin.rule_exceptions import EXCEPTIONS
from torus.twin.rules import Sweep, calls
from torus.twin.topology import Topology

CALLS = dict(calls(is_chosen))


@pytest.fixture(scope="module")
def sweep() -> Iterator[Sweep]:
    """One for all calls of this process: a rule that has its programs is not compiled again."""
    with Sweep(Compiler(Topology.parse("v6e:1x1"))) as found:
        yield found


@pytest.mark.parametrize("name", CALLS)
def test_programs_compile_for_a_tpu(name: str, sweep: Sweep) -> None:
    before = set(sweep.found)
    try:
        CALLS[name]()
    except Exception as error:
        pytest.skip(f"the call is not the device's: {error}")
    failed = {rule: each.failed for rule, each in sweep.found.items() if rule not in before and each.failed}
    assert not {rule: words for rule, words in failed.items() if rule not in EXCEPTIONS}
