"""One StableHLO module from the modules of several ops: each becomes a function, the main function calls them in order.

XLA inlines the calls. An op that occurs many times is one function, which keeps the text, and with it the time to parse
it, short.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torus.backend.eager.recipe import Recipe

_TYPE = r"tensor<(?:[^<>]|<[^<>]*>)*>"
_DEFINED = re.compile(r"func\.func (?:public|private) @([\w.$-]+)")
_SYMBOL = re.compile(r"@([\w.$-]+)")
_MAIN = re.compile(r"func\.func public @main\((.*)\) -> (.*) \{\n")
_ARGUMENT = re.compile(rf"%arg\d+: ({_TYPE})")
_RESULT = re.compile(_TYPE)
_HEAD = "module @torus attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {\n"


class NodeSpec(NamedTuple):
    """One op: its recipe, where its arrays come from (result numbers, or ``~i`` for argument i), and its scalars: the
    first of their words in the program's, and how many there are.
    """

    recipe: Recipe
    inputs: Sequence[int]
    first_word: int
    words: int


@dataclass
class Composed:
    """A module, the types of its arguments and of its results (wanted ones, then reports of index checks), and the
    arguments it uses up.
    """

    text: str
    argument_types: list[str]
    result_types: list[str]
    donated: list[int] = field(default_factory=list)


class _Op:
    """The functions of one op's module under names of their own, and the types of its main function."""

    def __init__(self, text: str, prefix: str) -> None:
        if not text.startswith("module @torus"):
            raise ValueError(f"a module with definitions outside of its functions cannot be composed: {text[:80]!r}")
        main = _MAIN.search(text)
        if main is None:
            raise ValueError("a module without a main function cannot be composed")
        self.arguments = _ARGUMENT.findall(main[1])
        self.results = _RESULT.findall(main[2])
        self.name = f"{prefix}.main"
        body = text[text.index("\n") + 1 : text.rindex("}")]
        defined = set(_DEFINED.findall(body))
        renamed = _SYMBOL.sub(lambda m: f"@{prefix}.{m[1]}" if m[1] in defined else m[0], body)
        self.functions = renamed.replace("func.func public", "func.func private")


def compose(nodes: Sequence[NodeSpec], outputs: Sequence[int], words: int, donated: Sequence[int] = ()) -> Composed:
    """The module that runs `nodes` in order and returns the results with the numbers `outputs`.

    Its parameters are the arguments in the order of their numbers, then an array of `words` uint32 with the scalars of
    all nodes, if there are any.
    A donated argument gives its memory to a result of its type, where there is one.
    """
    ops: dict[int, _Op] = {}
    values: list[tuple[str, str]] = []  # name and type of each result
    reports: list[tuple[str, str]] = []
    arguments: dict[int, str] = {}
    lines: list[str] = []
    for number, node in enumerate(nodes):
        op = ops.get(id(node.recipe))
        if op is None:
            op = ops[id(node.recipe)] = _Op(node.recipe.text, f"f{len(ops)}")
        for place, kind in zip(node.inputs, op.arguments):
            if place < 0:
                arguments.setdefault(~place, kind)
        operands = [f"%arg{~place}" if place < 0 else values[place][0] for place in node.inputs]
        if node.words:
            end = node.first_word + node.words
            kinds = f"(tensor<{words}xui32>) -> tensor<{node.words}xui32>"
            lines.append(f"%p{number} = stablehlo.slice %pack [{node.first_word}:{end}] : {kinds}")
            operands.append(f"%p{number}")
        results = [f"%v{number}#{i}" if len(op.results) > 1 else f"%v{number}" for i in range(len(op.results))]
        left = f"%v{number}:{len(results)} = " if len(results) > 1 else f"%v{number} = " if results else ""
        kinds = ", ".join(op.results)
        lines.append(f"{left}call @{op.name}({', '.join(operands)}) : ({', '.join(op.arguments)}) -> ({kinds})")
        own = len(results) - len(node.recipe.plan.checks)
        pairs = list(zip(results, op.results))
        values += pairs[:own]
        reports += pairs[own:]
    returned = [values[i] for i in outputs] + reports
    aliases = _aliases(arguments, [values[i][1] for i in outputs], donated)
    parameters = [f"%arg{i}: {arguments[i]}{_alias(aliases.get(i))}" for i in sorted(arguments)]
    argument_types = [arguments[i] for i in sorted(arguments)]
    if words:
        argument_types.append(f"tensor<{words}xui32>")
        parameters.append(f"%pack: {argument_types[-1]}")
    kinds = ", ".join(kind for _, kind in returned)
    main = "\n".join(
        [
            f"  func.func public @main({', '.join(parameters)}) -> ({kinds}) {{",
            *(f"    {line}" for line in lines),
            f"    return {', '.join(name for name, _ in returned)} : {kinds}",
            "  }",
        ]
    )
    text = _HEAD + main + "\n" + "".join(op.functions for op in ops.values()) + "}\n"
    return Composed(text, argument_types, [kind for _, kind in returned], sorted(aliases))


def _aliases(arguments: dict[int, str], results: Sequence[str], donated: Sequence[int]) -> dict[int, int]:
    """Argument -> the result that takes over its memory."""
    free: dict[str, list[int]] = {}
    for number, kind in reversed(list(enumerate(results))):
        free.setdefault(kind, []).append(number)
    return {i: free[arguments[i]].pop() for i in donated if free.get(arguments.get(i, ""))}


def _alias(result: int | None) -> str:
    return "" if result is None else f" {{tf.aliasing_output = {result} : i32}}"
