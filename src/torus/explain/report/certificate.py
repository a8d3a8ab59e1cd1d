"""A certificate as a block that people can read."""

from __future__ import annotations

from typing import Any

from torus.cli import texts
from torus.explain.certificate import Certificate
from torus.explain.report.markup import escape, number

WORDS = {
    "completeness_gap": "Gap between the sum of the attributions and the change that they explain",
    "error": "The method's own estimate of its error",
    "infidelity": "Infidelity",
    "sensitivity": "Sensitivity to small changes of the input",
    "without_rule": "Operators without a rule of their own",
    "values": "Rows of which the model gave the value",
    "gradients": "Rows of which it gave the gradient",
    "programs": "Programs launched",
    "compiles": "Programs compiled",
    "host_reads": "Values read by the host",
    "seconds": "Time",
    "peak_memory": "Peak memory of the device",
    "device": "Device",
    "mode": "Execution mode",
    "precision": "Matrix products",
    "precision_error": "Gradients of the precision that was set, from those of exact products",
    "seed": "Seed",
    "versions": "Versions",
}
"""What the reader is told, in this order; what is not named here comes after it by its own name."""

_MODES = {"defer_never": "strict", "defer_and_fuse": "fused"}

_IN_THE_VERDICT = ("method", "tolerance", "verdict", "passed")


def block(certificate: Certificate) -> str:
    """The verdict, then every fact that is known."""
    facts = certificate.to_dict()
    names = [*WORDS, *(name for name in facts if name not in WORDS and name not in _IN_THE_VERDICT)]
    shown = "".join(
        f"<div><dt>{escape(_label(name))}</dt><dd>{escape(_text(name, facts[name]))}</dd></div>"
        for name in names
        if facts.get(name) not in (None, "", [], {})
    )
    good = "bad" if not certificate.passed else "" if certificate.completeness_gap is None else "good"
    return (
        f'<section class="card certificate"><p class="verdict {good}">{escape(verdict(certificate))}</p>'
        f'<dl class="facts">{shown}</dl></section>'
    )


def verdict(certificate: Certificate) -> str:
    """One sentence: whether the numbers can be trusted, and why."""
    limit = number(certificate.tolerance, signed=False)
    gap = certificate.completeness_gap
    if certificate.verdict:
        return f"Not converged: {certificate.verdict}"
    if gap is None:
        return f"No promise to check: {certificate.method} says nothing of what its attributions sum to"
    size = number(gap, signed=False)
    if certificate.passed:
        return f"Passed: the attributions sum to what they explain, up to {size} of it (tolerance {limit})"
    return f"Failed: the attributions miss what they explain by {size} of it (tolerance {limit})"


def _label(name: str) -> str:
    return WORDS.get(name, name.replace("_", " "))


def _text(name: str, value: Any) -> str:
    if name == "seconds":
        return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.1f} ms"
    if name == "mode":
        return _MODES.get(value, value)
    if name == "peak_memory":
        return texts.size(value)
    if isinstance(value, float):
        return number(value, signed=False)
    if isinstance(value, dict):
        return ", ".join(f"{key} {part}" for key, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and name != "seed" else str(value)
