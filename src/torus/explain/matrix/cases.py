"""The table of cases: a case calls one method of Captum on one model."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from torus.explain.matrix.models import MODELS, Setup

LIMIT = 5e-7
"""Error of a result in units of its largest element, when products have the highest precision."""

NOT_RUN = {
    "Attribution": "abstract",
    "GradientAttribution": "abstract",
    "NeuronAttribution": "abstract",
    "PerturbationAttribution": "abstract",
    "InterpretableInput": "abstract",
    "RemoteLLMProvider": "abstract; the case of RemoteLLMAttribution has a local one",
    "VLLMProvider": "talks to a server; nothing runs on the device",
    "DataInfluence": "abstract",
    "TracInCPBase": "abstract",
    "ConceptInterpreter": "abstract",
    "Classifier": "abstract",
    "Perturbation": "abstract",
    "StochasticGatesBase": "abstract",
}
"""Public names of Captum without a case, and why."""


@dataclass(frozen=True)
class Case:
    """`run` gives tensors. `covers` are the public names that it uses, `needs` a package besides Captum."""

    name: str
    model: str
    run: Callable[[Setup], Any]
    covers: tuple[str, ...]
    limit: float = LIMIT
    needs: str | None = None

    @property
    def id(self) -> str:
        """What ``--only`` looks at."""
        return f"{self.model}:{self.name}"

    @property
    def missing(self) -> str | None:
        """The package without which it cannot run."""
        return None if self.needs is None or importlib.util.find_spec(self.needs) else self.needs


class Table(list[Case]):
    """A list of cases with a decorator that adds to it."""

    def case(
        self, name: str, *models: str, covers: tuple[str, ...] = (), limit: float = LIMIT, needs: str | None = None
    ) -> Callable[[Callable[[Setup], Any]], Callable[[Setup], Any]]:
        """Add the function as a case on these models; its name begins with the public name that it is about."""

        def add(run: Callable[[Setup], Any]) -> Callable[[Setup], Any]:
            for model in models:
                self.append(Case(name, model, run, (name.split(":")[0], *covers), limit, needs))
            return run

        return add


def joined(*parts: Any) -> torch.Tensor:
    """Results of one scale as one, so that a small one, such as a convergence delta, is judged by the largest."""
    flat = [joined(*part) if isinstance(part, tuple | list) else part.flatten() for part in parts]
    return torch.cat([part.to(flat[0]) for part in flat])


def public() -> dict[str, str]:
    """Every public class and function of Captum's packages, and the package it is in."""
    packages = ("attr", "metrics", "influence", "concept", "robust", "module")
    modules = {name: importlib.import_module(f"captum.{name}") for name in packages}
    return {name: f"captum.{package}" for package, module in modules.items() for name in module.__all__}


def all_cases() -> list[Case]:
    """Every case whose model can be built here."""
    from torus.explain.matrix import beyond, inputs, language, layers

    tables = (inputs.CASES, layers.CASES, language.CASES, beyond.CASES)
    return [case for table in tables for case in table if case.model in MODELS]
