"""Models by name: a local Hugging Face directory, or a factory in a module or a file."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torus.cli import CommandError

Loaded = tuple[Any, Any]
"""A model, and what prepares its input: a tokenizer, a function from an image, or None."""


def load(name: str, kind: str) -> Loaded:
    """The model for an input of `kind` ("text", "image" or "table").

    A factory is called without arguments, and returns the model or a pair with what prepares its input.
    """
    if (Path(name) / "config.json").is_file():
        return _directory(Path(name), kind)
    module, colon, factory = name.rpartition(":")
    if not colon or Path(name).exists():
        raise CommandError(
            f"{name} is no model: it is neither a directory with a config.json nor package.module:factory nor "
            "file.py:factory"
        )
    made = _factory(module, factory)()
    return made if isinstance(made, tuple) else (made, None)


def _directory(path: Path, kind: str) -> Loaded:
    """Nothing is downloaded, and no code of the directory runs."""
    try:
        import transformers
    except ImportError as error:
        raise CommandError(f"a Hugging Face directory needs transformers: {error}") from error
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    names = json.loads((path / "config.json").read_text(encoding="utf-8")).get("architectures") or ["AutoModel"]
    made = getattr(transformers, names[0], None)
    if made is None:
        raise CommandError(f"{path} holds a {names[0]}, which transformers {transformers.__version__} does not have")
    prepare = transformers.AutoTokenizer if kind == "text" else transformers.AutoImageProcessor
    try:
        model = made.from_pretrained(path, local_files_only=True, dtype="float32")
        return model, prepare.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError, ImportError) as error:
        raise CommandError(f"{path}: {error}") from error


def _factory(module: str, name: str) -> Callable[[], Any]:
    found = getattr(_module(module), name, None)
    if not callable(found):
        raise CommandError(f"{module} has no function {name}")
    made: Callable[[], Any] = found
    return made


def _module(name: str) -> Any:
    """A file, or a module that Python finds, the current directory first."""
    if not name.endswith(".py"):
        sys.path.insert(0, "")
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise CommandError(f"there is no module {name}: {error}") from error
        finally:
            sys.path.remove("")
    spec = importlib.util.spec_from_file_location(Path(name).stem, name)
    if spec is None or spec.loader is None or not Path(name).is_file():
        raise CommandError(f"there is no file {name}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
