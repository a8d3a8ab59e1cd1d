"""A StableHLO module as a light list of ops: what an analytic model asks of a program.

MLIR itself parses and checks the text, expands calls and merges equal ops, as XLA does first; with a mesh,
Shardy's own passes say how each value is split. Then the generic form, one op a line, is read by a regular expression:
for hundreds of thousands of ops that is ten times as fast as walking them through Python's bindings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from torus.runtime import jaxlib_adapter
from torus.twin.step import Spec

SIMPLER = "builtin.module(canonicalize,cse)"
SPLIT = "builtin.module(sdy-propagation-pipeline)"


@dataclass(slots=True)
class Value:
    """One result of an op, or an argument of a function or region. `shape` is global."""

    shape: tuple[int, ...]
    dtype: str
    """As MLIR writes it: ``"f32"``, ``"bf16"``, ``"i64"``, ``"i1"``."""
    spec: Spec = ()
    """For each dimension the mesh axes over which it is split; ``()`` for a whole value."""


@dataclass(slots=True)
class Op:
    """One op. Operands and results are indices into `Module.values`."""

    name: str
    """Without its dialect where that is StableHLO: ``"dot_general"``, ``"chlo.erf"``."""
    operands: tuple[int, ...]
    results: tuple[int, ...]
    attributes: str
    """As MLIR writes them; `ints` and `groups` read them."""
    regions: list[Region] = field(default_factory=list)
    place: str = ""

    def ints(self, name: str) -> tuple[int, ...]:
        """A list of integers, or one, among the attributes; empty where there is none of that name."""
        return _ints(self.attributes, name)


@dataclass(slots=True)
class Region:
    """The body of a function, loop or reduction. `returns` are the operands of its last op."""

    arguments: tuple[int, ...] = ()
    ops: list[Op] = field(default_factory=list)
    returns: tuple[int, ...] = ()


@dataclass(slots=True)
class Module:
    """The main function of a module, with all calls expanded."""

    values: list[Value]
    main: Region


class _Names(dict[str, int]):
    """The index of each SSA name."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Value] = []

    def add(self, name: str, value: Value) -> int:
        self[name] = len(self.all)
        self.all.append(value)
        return self[name]


def read(text: str, mesh: dict[str, int] | None = None, places: Sequence[str] = ()) -> Module:
    """The module of `text`, with values split over `mesh`. `places` name the ops of its main function, in their order.

    Raises ValueError for what is no StableHLO module, or has sizes that are not known.
    """
    with jaxlib_adapter.parsing() as ir:
        try:
            module = ir.Module.parse(text)
        except ir.MLIRError as error:
            raise ValueError(f"this is not a StableHLO module: {error}") from None
        if places:
            _name_places(ir, module, places)
        try:
            jaxlib_adapter.inline_calls(module)
        except KeyError as error:
            raise ValueError(f"this module has no function {error}") from None
        for pipeline in (SIMPLER, SPLIT) if mesh else (SIMPLER,):
            jaxlib_adapter.run_passes(module, pipeline)
        lines = module.operation.get_asm(
            print_generic_op_form=True, large_elements_limit=16, enable_debug_info=bool(places), use_local_scope=True
        )
    return _read_generic(lines)


def _name_places(ir: object, module: object, places: Sequence[str]) -> None:
    for function in module.body.operations:  # type: ignore[attr-defined]
        if "function_type" in function.attributes and function.name.value == "main":
            for op, place in zip(function.body.blocks[0].operations, places, strict=False):
                op.operation.location = ir.Location.name(place)  # type: ignore[attr-defined]


# The generic form ----------------------------------------------------------------------------------------------------

_OP = re.compile(r'\s*(?:(%[\w$.-]+)(?::(\d+))? = )?"([\w.]+)"\(([^)]*)\)(?:\[[^\]]*\])? ?(.*)$')
_ARGUMENT = re.compile(r"(%[\w$.-]+): (tensor<[^>]*>+|[^,)]+)")
_TYPE = re.compile(r"tensor<(?:[^<>]|<[^<>]*>)*>|![\w.]+(?:<[^>]*>)?|tuple<.*>")
_PLACE = re.compile(r'"((?:[^"\\]|\\.)*)"(:\d)?')


def _read_generic(text: str) -> Module:
    names = _Names()
    stack: list[tuple[Op | None, Region]] = [(None, Region())]
    for line in text.splitlines():
        if found := _OP.match(line):
            name, count, kind, operands, rest = found.groups()
            if kind.endswith("return"):
                stack[-1][1].returns = tuple(names[o] for o in _operands(operands))
                continue
            op = Op(kind.removeprefix("stablehlo."), tuple(names[o] for o in _operands(operands)), (), "")
            stack[-1][1].ops.append(op)
            if rest.endswith("({"):
                op.attributes = rest[:-2]
                op.results = _reserve(names, name, count)
                op.regions.append(Region())
                stack.append((op, op.regions[-1]))
            else:
                op.results = _reserve(names, name, count)
                _finish(op, rest, names)
            continue
        start = line.lstrip()
        if start.startswith("^bb"):
            found_arguments = _ARGUMENT.findall(start)
            stack[-1][1].arguments = tuple(names.add(n, Value(*_type(t))) for n, t in found_arguments)
        elif start.startswith("}, {"):
            owner = stack.pop()[0]
            assert owner is not None
            owner.regions.append(Region())
            stack.append((owner, owner.regions[-1]))
        elif start.startswith("})") and len(stack) > 1:
            owner = stack.pop()[0]
            assert owner is not None
            _finish(owner, start[2:], names)
    main = next((op for op in _all_ops(stack[0][1]) if op.name == "func.func"), None)
    assert main is not None
    region = main.regions[0]
    for index, spec in zip(region.arguments, _argument_specs(main.attributes), strict=False):
        names.all[index].spec = spec
    return Module(names.all, region)


def _all_ops(region: Region) -> Iterator[Op]:
    for op in region.ops:
        yield op
        if op.name == "builtin.module":
            yield from _all_ops(op.regions[0])


def _operands(text: str) -> list[str]:
    return text.split(", ") if text else []


def _reserve(names: _Names, name: str | None, count: str | None) -> tuple[int, ...]:
    """Indices for results whose types come at the end of the op."""
    if name is None:
        return ()
    if count is None:
        return (names.add(name, Value((), "")),)
    return tuple(names.add(f"{name}#{i}", Value((), "")) for i in range(int(count)))


def _finish(op: Op, rest: str, names: _Names) -> None:
    """Read attributes, types of results and place from what follows the operands and regions."""
    at = rest.rfind(" : (") if not rest.startswith(": (") else 0
    op.attributes = f"{op.attributes} {rest[:at]}" if op.regions else rest[:at]
    signature = rest[at:]
    cut = signature.find(" loc(")
    if cut >= 0:
        # A name; with numbers behind it, it is a file and line of the text.
        places = [name for name, line in _PLACE.findall(signature, cut) if not line]
        op.place = _unescaped(places[-1]) if places else ""
        signature = signature[:cut]
    if not op.results:
        return
    types = _TYPE.findall(signature[signature.rfind("->") :])
    specs = _result_specs(op.attributes) if "sdy.sharding" in op.attributes or "sharding" in op.attributes else ()
    for position, index in enumerate(op.results):
        value = names.all[index]
        value.shape, value.dtype = _type(types[position])
        if position < len(specs):
            value.spec = specs[position]


@lru_cache(maxsize=65536)
def _unescaped(name: str) -> str:
    """MLIR writes bytes other than printable ASCII as two hexadecimal digits."""
    found = re.sub(rb"\\([0-9A-F]{2})", lambda m: bytes([int(m[1], 16)]), name.encode())
    return found.replace(b"\\\\", b"\\").decode(errors="replace")


@lru_cache(maxsize=65536)
def _type(text: str) -> tuple[tuple[int, ...], str]:
    if not text.startswith("tensor<"):
        return (), "token"
    inside = text[len("tensor<") : -1].split(", #")[0]
    *sizes, dtype = re.split(r"x(?![^<]*>)(?=[^<]*(?:<|$))", inside) if "complex" not in inside else _complex(inside)
    if "?" in sizes:
        raise ValueError(f"a size is not known: {text}")
    return tuple(map(int, sizes)), dtype


def _complex(inside: str) -> list[str]:
    head, _, tail = inside.partition("complex")
    return [*(s for s in head.split("x") if s), "complex" + tail]


@lru_cache(maxsize=65536)
def _ints(attributes: str, name: str) -> tuple[int, ...]:
    found = re.search(rf"\b{name} = (?:array<i64(?::\s*)?|dense<|\[)?([-\d,\s\[\]]*)", attributes)
    return tuple(map(int, re.findall(r"-?\d+", found.group(1)))) if found else ()


# Shardings -----------------------------------------------------------------------------------------------------------

_SHARDING = re.compile(r"<@[\w$.-]+, \[([^\]]*)\]")
_DIMENSION = re.compile(r"\{([^}]*)\}")
_AXIS = re.compile(r'"([^"]+)"')


@lru_cache(maxsize=65536)
def _spec(dimensions: str) -> Spec:
    return tuple(tuple(_AXIS.findall(part)) for part in _DIMENSION.findall(dimensions))


@lru_cache(maxsize=65536)
def _result_specs(attributes: str) -> tuple[Spec, ...]:
    at = attributes.find("sharding = #sdy.sharding")
    if at < 0:
        at = attributes.find("sharding = <@")
    return tuple(_spec(dims) for dims in _SHARDING.findall(attributes, at)) if at >= 0 else ()


def _argument_specs(attributes: str) -> list[Spec]:
    at = attributes.find("arg_attrs = [")
    if at < 0:
        return []
    specs, depth, begin = [], 0, 0
    for i in range(at + len("arg_attrs = ["), len(attributes)):
        letter = attributes[i]
        if letter == "{":
            begin, depth = (i, depth + 1) if depth == 0 else (begin, depth + 1)
        elif letter == "}":
            depth -= 1
            if depth == 0:
                found = _result_specs(attributes[begin:i])
                specs.append(found[0] if found else ())
        elif letter == "]" and depth == 0:
            break
    return specs
