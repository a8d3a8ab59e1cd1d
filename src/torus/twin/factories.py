"""The model that a command line names: a function in a module or file, a Hugging Face folder, or a worked example."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torus.twin.examples import EXAMPLES


@dataclass(frozen=True)
class Recipe:
    """What `torus.twin.capture` takes."""

    model: Any
    inputs: Any
    loss: Callable[..., Any] | None = None
    optimizer: Any = None


def load(text: str, **options: Any) -> Recipe:
    """The model and inputs that `text` names.

    text: ``"package.module:function"`` or ``"file.py:function"``, whose function gives ``(model, inputs)`` or a mapping
        of the fields of `Recipe`; a folder with the ``config.json`` of a Hugging Face model; or an example's name.
    options: what of it may be chosen, such as ``batch=8``.

    Raises ValueError for what is none of these, for an option that the function does not have, and for a function that
    gives something else.
    """
    function = factory(text)
    known = inspect.signature(function).parameters
    free = any(p.kind is p.VAR_KEYWORD for p in known.values())
    if strange := [name for name in options if name not in known and not free]:
        raise ValueError(f"{text} has no option {', '.join(strange)}; it has {', '.join(known) or 'none'}")
    return _recipe(text, function(**options))


def factory(text: str) -> Callable[..., Any]:
    """The function that makes the model which `text` names. Raises ValueError."""
    if text in EXAMPLES:
        return EXAMPLES[text]
    if (Path(text) / "config.json").is_file():
        return _hugging_face(Path(text))
    if ":" not in text:
        raise ValueError(
            f'"{text}" names no model: give "package.module:function", "file.py:function", a folder with a '
            f"config.json, or one of {', '.join(EXAMPLES)}"
        )
    place, _, name = text.rpartition(":")
    module = _module(place)
    if not callable(found := getattr(module, name, None)):
        raise ValueError(f"{place} has no function {name}")
    return found


def _module(place: str) -> Any:
    if not place.endswith(".py"):
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise ValueError(f"there is no module {place}: {error}") from error
    path = Path(place)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise ValueError(f"there is no file {place}")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


def _recipe(text: str, made: Any) -> Recipe:
    if isinstance(made, Recipe):
        return made
    if isinstance(made, tuple) and len(made) == 2:
        return Recipe(*made)
    if isinstance(made, Mapping) and {"model", "inputs"} <= set(made) <= set(Recipe.__dataclass_fields__):
        return Recipe(**made)
    raise ValueError(f"{text} gave {type(made).__name__}, not (model, inputs) or a mapping with model and inputs")


def _hugging_face(folder: Path) -> Callable[..., Recipe]:
    """A model by its configuration alone, without weights."""

    def make(batch: int = 1, tokens: int = 128) -> Recipe:
        import transformers

        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        config.use_cache = False
        names = getattr(config, "architectures", None) or []
        kind = getattr(transformers, names[0], None) if names else None
        with torch.device("meta"):
            model = kind._from_config(config) if kind is not None else transformers.AutoModel.from_config(config)
            ids = torch.zeros(batch, tokens, dtype=torch.int64)
        inputs = {"input_ids": ids}
        if "labels" in inspect.signature(model.forward).parameters and "ForCausalLM" in type(model).__name__:
            inputs["labels"] = ids.clone()
        return Recipe(model.train(), inputs)

    return make
