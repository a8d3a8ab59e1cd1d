"""Graphs with dynamic sizes: a few padded programs serve all sizes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torus.backend.compile.dynamic.buckets import Buckets, cut, pad
from torus.backend.compile.errors import CompileError
from torus.backend.compile.options import Options
from torus.backend.compile.programs import GraphProgram, program_of
from torus.backend.compile.symbols import find


def symbols_of(module: torch.fx.GraphModule) -> list[Any]:
    """The symbols of the sizes of a graph's arguments, in the order of the arguments."""
    found: dict[Any, None] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            for expression in _expressions(node.meta.get("val")):
                found.update(dict.fromkeys(sorted(expression.free_symbols, key=str)))
    return list(found)


def _expressions(fake: Any) -> list[Any]:
    sizes = fake.shape if isinstance(fake, torch.Tensor) else [fake]
    return [s.node.expr for s in sizes if isinstance(s, torch.SymInt)]


class PaddedProgram:
    """Runs a graph on padded copies of its arguments. `run` has the form of the core's `Graph.run`.

    A size is padded from its second value on, or from the first when its largest value was announced.
    """

    def __init__(self, module: torch.fx.GraphModule, options: Options, dense: int) -> None:
        """`dense`: so many of the results are without gaps in memory; the others are views of padded memory."""
        self.module, self.options, self.dense = module, options, dense
        self.symbols = symbols_of(module)
        self.fakes = [n.meta.get("val") for n in module.graph.nodes if n.op == "placeholder"]
        self.inputs = [
            _Sizes(f, self.symbols) if isinstance(f, torch.Tensor) else _size(f, self.symbols) for f in self.fakes
        ]
        self.sources = [_source(s, self.fakes) for s in self.symbols]
        self.limits = [_limit(s, self.fakes) for s in self.symbols]
        self.varying = [limit is not None for limit in self.limits]
        self.first: tuple[int, ...] | None = None
        most = options.num_dynamic_buckets
        self.buckets = [
            Buckets(most if limit is not None else max(1, most - 1), options.bucket_size, limit)
            for limit in self.limits
        ]
        self._choose_program()

    def _choose_program(self) -> None:
        varying = [s for s, varies in zip(self.symbols, self.varying) if varies]
        self.program: GraphProgram = program_of(self.module, self.options, varying)
        self.outputs = [_Sizes(f, self.symbols) if isinstance(f, torch.Tensor) else None for f in self.program.results]

    def run(self, arguments: list[Any]) -> list[Any]:
        """The results for `arguments`: tensors, and numbers for symbolic sizes."""
        real = tuple(read(arguments) for read in self.sources)
        if self.first is None:
            self.first = real
        if any(n != f and not v for n, f, v in zip(real, self.first, self.varying)):
            self.varying = [v or n != f for n, f, v in zip(real, self.first, self.varying)]
            self._choose_program()
        padded = tuple(b.choose(n) if v else n for b, n, v in zip(self.buckets, real, self.varying))
        given: list[Any] = []
        for value, sizes in zip(arguments, self.inputs):
            if isinstance(sizes, _Sizes):
                given.append(pad(value, sizes(padded)) if sizes.dynamic else value)
            else:
                given.append(sizes(padded) if sizes is not None and value is not None else value)
        results = self.program.core.run(given + [n for n, v in zip(real, self.varying) if v])
        return [
            cut(result, sizes(real), i < self.dense) if sizes is not None and sizes.dynamic else result
            for i, (result, sizes) in enumerate(zip(results, self.outputs))
        ]


class _Sizes:
    """The sizes of a tensor as a function of the symbols' values."""

    def __init__(self, fake: torch.Tensor, symbols: Sequence[Any]) -> None:
        self.dynamic = any(isinstance(s, torch.SymInt) for s in fake.shape)
        self._dims = [_size(s, symbols) or s for s in fake.shape]
        self._cached = functools.lru_cache(64)(self._evaluate)

    def __call__(self, values: tuple[int, ...]) -> tuple[int, ...]:
        return self._cached(values)

    def _evaluate(self, values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(d(values) if callable(d) else int(d) for d in self._dims)


def _size(size: Any, symbols: Sequence[Any]) -> Callable[[tuple[int, ...]], int] | None:
    """A symbolic size as a function of the symbols' values; None for any other argument."""
    if not isinstance(size, torch.SymInt):
        return None
    expression = size.node.expr
    return lambda values: int(expression.subs(dict(zip(symbols, values))))


def _source(symbol: Any, fakes: Sequence[Any]) -> Callable[[list[Any]], int]:
    """Where the value of a symbol is found among the arguments."""
    for i, fake in enumerate(fakes):
        if isinstance(fake, torch.SymInt) and fake.node.expr == symbol:
            return lambda arguments: int(arguments[i])
    for i, fake in enumerate(fakes):
        sizes: Sequence[Any] = fake.shape if isinstance(fake, torch.Tensor) else ()
        for d, size in enumerate(sizes):
            if _is_symbolic(size) and size.node.expr == symbol:
                return lambda arguments: int(arguments[i].shape[d])
    told = [
        (size.node.expr, i, d)
        for i, fake in enumerate(fakes)
        for d, size in enumerate(list[Any](fake.shape) if isinstance(fake, torch.Tensor) else ())
        if _is_symbolic(size) and size.node.expr.free_symbols == {symbol}
    ]
    solve = functools.lru_cache(64)(lambda values: find(symbol, [(e, v) for (e, _, _), v in zip(told, values)]))

    def read(arguments: list[Any]) -> int:
        found = solve(tuple(int(arguments[i].shape[d]) for _, i, d in told))
        if found is None:
            raise CompileError(f"no argument tells the size {symbol}")
        return found

    if not told:
        raise CompileError(f"no argument tells the size {symbol}")
    return read


def number_of(size: torch.SymInt, fakes: Sequence[Any]) -> Callable[[list[Any]], int]:
    """A symbolic number as a function of the arguments whose fakes are given."""
    symbols = sorted(size.node.expr.free_symbols, key=str)
    sources = [_source(s, fakes) for s in symbols]
    evaluate = functools.lru_cache(64)(lambda values: int(size.node.expr.subs(dict(zip(symbols, values)))))
    return lambda arguments: evaluate(tuple(read(arguments) for read in sources))


def _limit(symbol: Any, fakes: Sequence[Any]) -> int | None:
    """The largest value that was announced for a symbol."""
    sizes: list[Any] = [s for f in fakes for s in (f.shape if isinstance(f, torch.Tensor) else [f])]
    for size in filter(_is_symbolic, sizes):
        if size.node.expr == symbol:
            upper = size.node.shape_env.var_to_range[symbol].upper
            return int(upper) if upper.is_Integer and int(upper) < 2**31 else None
    return None


def _is_symbolic(size: Any) -> bool:
    return isinstance(size, torch.SymInt)
