"""Analytic and composed answers as ratios to the exact one: small training steps on one v6e chip, at least effort."""

from __future__ import annotations

from typing import Any

from benchmarks.report import Figure, Result

GROUP = "twin-agreement"
TOPOLOGY = "v6e:1x1"
GPT = {"batch": 8, "tokens": 128, "width": 256, "vocabulary": 2048}
STEPS: dict[str, tuple[str, dict[str, Any], str]] = {
    **{f"GPT of {n} layers, SGD": ("tiny-gpt", GPT | {"layers": n}, "sgd") for n in (2, 4, 6)},
    "GPT of 4 layers, AdamW": ("tiny-gpt", GPT | {"layers": 4}, "adamw"),
    "MiniLM": ("minilm", {"batch": 8, "tokens": 64}, "adamw"),
    "ResNet-18": ("resnet18", {"batch": 8, "pixels": 64, "classes": 100}, "adamw"),
}
"""The worked example, its options, and the optimizer."""
SMALL = {"GPT of 1 layer, SGD": ("tiny-gpt", GPT | {"layers": 1, "width": 32, "tokens": 16, "vocabulary": 64}, "sgd")}
LIMITS = {
    "analytic": {"HBM peak": 0.2, "FLOPs": 0.02, "bytes": 0.25},
    "composed": {"HBM peak": 0.05},
}
"""The most that a ratio may be off 1."""
COMPILED = 600.0
"""Seconds after which a compile is given up."""


def run(quick: bool) -> Result:
    """Compile each step whole and in blocks; results are kept on disk, as those of ``torus plan`` are."""
    samples = {name: _answers(*step) for name, step in (SMALL if quick else STEPS).items()}
    figures = [
        Figure(
            GROUP, f"{name}: {answer} / exact, {what}, distance from 1", abs(ratio - 1), "", LIMITS[answer].get(what)
        )
        for name, answers in samples.items()
        for answer, ratios in answers.items()
        for what, ratio in ratios.items()
    ]
    rows = [
        [f"{name}, {answer} / exact", *(f"{ratio:.3f}" for ratio in ratios.values())]
        for name, answers in samples.items()
        for answer, ratios in answers.items()
    ]
    return Result(figures, ["ratio", *LIMITS["analytic"]], rows, samples)


def _answers(example: str, options: dict[str, Any], optimizer: str) -> dict[str, dict[str, float]]:
    from torus.twin.analytic import estimate
    from torus.twin.compiler import Compiler, exact
    from torus.twin.compiler.compiler import QUICK
    from torus.twin.composed import compose
    from torus.twin.topology import Topology

    step, topology = _step(example, options, optimizer), Topology.parse(TOPOLOGY)
    compiler = Compiler(topology)
    whole = exact(step, topology, compiler, options=QUICK, timeout=COMPILED)
    found = {"analytic": estimate(step, topology), "composed": compose(step, topology, compiler, COMPILED)}
    return {name: _ratios(answer, whole) for name, answer in found.items()}


def _step(example: str, options: dict[str, Any], optimizer: str) -> Any:
    import torch

    from torus.twin.case import Case
    from torus.twin.examples import EXAMPLES

    recipe = EXAMPLES[example](**options)
    made = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[optimizer](recipe["model"].parameters(), lr=1e-3)
    case = Case(recipe["model"], recipe["inputs"], "train", recipe.get("loss"), made, {"data": 1})
    return case.capture()


def _ratios(answer: Any, whole: Any) -> dict[str, float]:
    return {
        "HBM peak": answer.memory.needed / whole.memory.needed,
        "FLOPs": answer.flops / whole.flops,
        "bytes": answer.bytes / whole.bytes,
    }
