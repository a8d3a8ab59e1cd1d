"""The structure of a model's result as JSON: dicts, lists and tuples, with outputs and constants as leaves.

A tree is the index of an output, or one of ``{"dict": {key: tree}}``, ``{"list": [tree]}``, ``{"tuple": [tree]}`` and
``{"value": constant}``, where a constant is None, a bool, a number or a string.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torus.bundle.errors import BundleError, DamagedBundleError

Tree = Any


def rebuild(tree: Tree, leaves: Sequence[Any]) -> Any:
    """What the model returns, with ``leaves[i]`` for output i. Raises DamagedBundleError for what is no tree."""
    match tree:
        case bool():
            pass
        case int() if 0 <= tree < len(leaves):
            return leaves[tree]
        case {"dict": dict(entries)}:
            return {key: rebuild(child, leaves) for key, child in entries.items()}
        case {"list": list(children)}:
            return [rebuild(child, leaves) for child in children]
        case {"tuple": list(children)}:
            return tuple(rebuild(child, leaves) for child in children)
        case {"value": value}:
            return value
    raise DamagedBundleError(f"the manifest's structure of results has {tree!r}, which is none")


def constant(value: Any) -> Tree:
    """The tree of a constant. Raises BundleError for what JSON cannot hold exactly."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    raise BundleError(f"a bundle cannot return the constant {value!r} of type {type(value).__name__}")


def names(tree: Tree, count: int) -> list[str]:
    """A name for each of `count` outputs, from where it is in the tree: ``"logits"``, ``"states.0"``; ``"output"`` for
    a single result.
    """
    found = [f"output.{i}" for i in range(count)]

    def walk(tree: Tree, path: tuple[str, ...]) -> None:
        if isinstance(tree, int):
            found[tree] = ".".join(path) or "output"
        elif "dict" in tree:
            for key, child in tree["dict"].items():
                walk(child, (*path, key))
        else:
            for i, child in enumerate(tree.get("list", tree.get("tuple", ()))):
                walk(child, (*path, str(i)))

    walk(tree, ())
    return found
