"""Where the error of float32 products grows in a model, layer by layer, in each precision of a TPU's matrix unit.

The model really runs, on small inputs, on the device that is there: without a TPU the passes of its matrix unit are
computed one by one (`torch.tpu.precision`). What it is compared with runs on the CPU in float64. What a layer *adds* is
the error at the model's output of a run in which its own products alone, and not those of the modules in it, have the
lowest precision, and all others the highest: errors at outputs say where the error is, what layers add who made it.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from torus.backend.device.numerics import Precision, get_precision, precision
from torus.cli.texts import table as lay_out

PASSES = {"default": 1, "high": 3, "highest": 6}
"""Of a TPU's matrix unit, for one float32 product: its time, as far as products decide it."""

_RAISED = (1, 2, 4, 8)
"""How many layers are tried in the next precision while the others stay."""


@dataclass(frozen=True)
class Layer:
    """One call of a module. Errors are norms of differences over norms of the reference, by precision."""

    name: str
    """Its path; ``path[2]`` for the second call of the same module."""
    kind: str
    flops: int
    """Of its own products: not those of the modules in it."""
    error: dict[str, float]
    """At its output."""
    adds: float | None
    """To the error of the model's output, in the lowest precision; None where it has no products of its own."""


@dataclass(frozen=True)
class Gradient:
    """Errors of the gradient of one parameter, by precision."""

    name: str
    error: dict[str, float]


@dataclass(frozen=True)
class Raised:
    """A run in which some layers have a higher precision than the others."""

    layers: tuple[str, ...]
    low: str
    high: str
    passes: float
    """For one product, on average over the model's FLOPs."""
    error: float
    """At the model's output."""


@dataclass(frozen=True)
class Numerics:
    """What each precision does to a model."""

    step: str
    precisions: tuple[str, ...]
    layers: tuple[Layer, ...]
    """In the order in which they return; the model itself is the last."""
    gradients: tuple[Gradient, ...] = ()
    raised: tuple[Raised, ...] = ()
    notes: tuple[str, ...] = ()
    passes: dict[str, int] = field(default_factory=lambda: dict(PASSES))

    @property
    def output(self) -> dict[str, float]:
        """The error of the model's output, by precision."""
        return self.layers[-1].error

    @property
    def flops(self) -> int:
        """Of all products of a forward pass."""
        return sum(layer.flops for layer in self.layers)

    def worst(self) -> list[Layer]:
        """The layers that add to the error of the output in the lowest precision; first what adds most."""
        return sorted((layer for layer in self.layers if layer.adds is not None), key=lambda layer: -(layer.adds or 0))

    def rows(self) -> list[list[str]]:
        """A header, and for each layer its name, kind, share of the FLOPs, error at its output and what it adds."""
        head = ["layer", "kind", "FLOPs", *self.precisions, f"adds in {self.precisions[0]}"]
        return [head, *(self._row(layer) for layer in self.layers)]

    def _row(self, layer: Layer) -> list[str]:
        share = f"{layer.flops / self.flops:.1%}" if layer.flops else ""
        return [layer.name, layer.kind, share, *(_show(layer.error[p]) for p in self.precisions), _show(layer.adds)]

    def costs(self) -> list[list[str]]:
        """A header, and for each precision and each mixture that was tried, what it costs and what error it leaves."""
        rows = [["precision", "passes", "error of the output", "largest error of a gradient"]]
        for each in self.precisions:
            worst = max((g.error[each] for g in self.gradients), default=None)
            rows.append([each, f"{self.passes[each]}", _show(self.output[each]), _show(worst)])
        for mix in self.raised:
            where = ", ".join(mix.layers) if len(mix.layers) < 3 else f"the {len(mix.layers)} that add most"
            rows.append([f"{mix.low}, {mix.high} in {where}", f"{mix.passes:.2f}", _show(mix.error), ""])
        return rows

    def table(self) -> str:
        """All of it as text."""
        parts = ["Relative errors against float64, at the output of each layer:", lay_out(self.rows())]
        if worst := self.worst()[:5]:
            named = ", ".join(f"{layer.name} ({_show(layer.adds)})" for layer in worst)
            parts.append(f"What adds most in {self.precisions[0]!r}: {named}")
        if self.gradients:
            rows = [["gradient of", *self.precisions]]
            rows += [[g.name, *(_show(g.error[p]) for p in self.precisions)] for g in self.gradients]
            parts += ["Relative errors of gradients:", lay_out(rows)]
        parts += ["Cost (passes of the matrix unit for one product) and error:", lay_out(self.costs()), *self.notes]
        return "\n".join(parts)

    def json(self) -> dict[str, Any]:
        """All of it as what JSON can hold."""
        return asdict(self) | {"flops": self.flops, "output": self.output}


def numerics(
    model: nn.Module,
    inputs: Any,
    *,
    step: Literal["forward", "train"] = "forward",
    precisions: Sequence[str] = ("default", "high", "highest"),
    loss: Callable[[Any], torch.Tensor] | None = None,
) -> Numerics:
    """Run `model` on `inputs` in each of the `precisions` and in float64, and compare them layer by layer.

    `inputs` are a tuple of arguments, a dict of keyword arguments, or one tensor. With ``step="train"`` gradients are
    compared too, those of ``loss(output)``: the mean square of the output where no loss is given. The model runs in
    evaluation mode, since dropout would differ from run to run; it is left as it was. Raises TypeError for what is no
    module, ValueError for other words.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"numerics looks at the modules of a torch.nn.Module, and got {type(model).__name__}")
    if step not in ("forward", "train"):
        raise ValueError(f"step is 'forward' or 'train', not {step!r}")
    for each in precisions:
        Precision[each.upper()] if each.upper() in Precision.__members__ else _unknown(each)
    return _Study(model, inputs, step == "train", tuple(precisions), loss or _mean_square).run()


def _unknown(word: str) -> None:
    raise ValueError(f"a precision is one of {', '.join(map(repr, PASSES))}, not {word!r}")


class _Study:
    def __init__(
        self,
        model: nn.Module,
        inputs: Any,
        train: bool,
        precisions: tuple[str, ...],
        loss: Callable[[Any], torch.Tensor],
    ) -> None:
        self.train, self.precisions, self.loss = train, precisions, loss
        self.reference = _copy(model).cpu().double()
        self.model = _copy(model).to("tpu")
        self.exact_inputs = _arguments(inputs, _exact)
        self.inputs = _arguments(inputs, _on_device)

    def run(self) -> Numerics:
        calls, exact_gradients = self._exact()
        errors: dict[str, dict[str, float]] = {name: {} for name in calls}
        gradients: dict[str, dict[str, float]] = {name: {} for name in exact_gradients}
        for each in self.precisions:
            with precision(each):
                outputs, found = self._run(self.model, self.inputs)
            for name, call in calls.items():
                errors[name][each] = relative(outputs.get(name, ()), call.output)
            for name, exact in exact_gradients.items():
                gradients[name][each] = relative(found[name], exact)
        adds = {name: self._adds(name, call, calls[ROOT]) for name, call in calls.items()}
        layers = tuple(Layer(n, c.kind, c.flops, errors[n], adds[n]) for n, c in calls.items())
        result = Numerics("train" if self.train else "forward", self.precisions, layers)
        return replace(
            result,
            gradients=tuple(Gradient(name, error) for name, error in gradients.items()),
            raised=tuple(self._raise(result, calls[ROOT])),
            notes=_notes(),
        )

    def _exact(self) -> tuple[dict[str, _Call], dict[str, list[torch.Tensor]]]:
        """The calls of the reference, by name, and its gradients."""
        flops = _flops(self.reference, self.exact_inputs)
        calls: dict[str, _Call] = {}

        def note(name: str, module: nn.Module, output: Any) -> None:
            made = flops.get(_path(name), 0) if not name.endswith("]") else 0
            calls[name] = _Call(type(module).__name__, made, _floats(output))

        with _watching(self.reference, note):
            gradients = self._gradients(self.reference, self.exact_inputs)
        return calls, gradients

    def _run(
        self, model: nn.Module, inputs: Any
    ) -> tuple[dict[str, list[torch.Tensor]], dict[str, list[torch.Tensor]]]:
        outputs: dict[str, list[torch.Tensor]] = {}
        with _watching(model, lambda name, module, output: outputs.update({name: _floats(output)})):
            gradients = self._gradients(model, inputs)
        return outputs, gradients

    def _gradients(self, model: nn.Module, inputs: Any) -> dict[str, list[torch.Tensor]]:
        args, kwargs = inputs
        if not self.train:
            with torch.no_grad():
                model(*args, **kwargs)
            return {}
        parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
        found: Any = torch.autograd.grad(
            self.loss(model(*args, **kwargs)), list(parameters.values()), allow_unused=True
        )
        return {name: _floats(gradient) for name, gradient in zip(parameters, found) if gradient is not None}

    def _adds(self, name: str, call: _Call, whole: _Call) -> float | None:
        """What the products of one module alone do to the model's output in the lowest precision."""
        if not call.flops:
            return None
        with precision("highest"):
            return self._error_with((name,), self.precisions[0], whole)

    def _error_with(self, names: Sequence[str], value: str, whole: _Call) -> float:
        """The error of the model's output where the products of some modules have the precision `value`."""
        args, kwargs = self.inputs
        with torch.no_grad(), _in_precision(self.model, names, value):
            return relative(_floats(self.model(*args, **kwargs)), whole.output)

    def _raise(self, found: Numerics, whole: _Call) -> Iterator[Raised]:
        """What a few layers in the next precision gain."""
        low, high = (*self.precisions, *self.precisions)[:2]
        worst = found.worst()
        for count in (count for count in _RAISED if low != high and count < len(worst)):
            names = tuple(layer.name for layer in worst[:count])
            with precision(low):
                error = self._error_with(names, high, whole)
            more = sum(layer.flops for layer in worst[:count]) * (PASSES[high] - PASSES[low])
            yield Raised(names, low, high, PASSES[low] + more / found.flops, error)


ROOT = "(model)"
"""The name of the model itself among its layers."""


@dataclass
class _Call:
    kind: str
    flops: int
    output: list[torch.Tensor]


def relative(found: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> float:
    """The norm of the difference over the norm of the exact values; infinite where sizes or finite values differ."""
    if [t.shape for t in found] != [t.shape for t in exact]:
        return float("inf")
    difference = sum(float((a - b).square().sum()) for a, b in zip(found, exact, strict=True))
    size = sum(float(b.square().sum()) for b in exact)
    if difference != difference:
        return float("inf")
    return (difference / size) ** 0.5 if size else float("inf") if difference else 0.0


def _copy(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).eval()


def _arguments(inputs: Any, convert: Callable[[torch.Tensor], torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), _map(dict(inputs), convert)
    return _map(tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,), convert), {}


def _map(value: Any, convert: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return convert(value)
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        return type(value)(_map(item, convert) for item in value)
    return {key: _map(item, convert) for key, item in value.items()} if type(value) is dict else value


def _as(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.detach().to(dtype) if tensor.is_floating_point() else tensor.detach()


def _exact(tensor: torch.Tensor) -> torch.Tensor:
    return _as(tensor.cpu(), torch.float64)


def _on_device(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("tpu")


def _floats(value: Any) -> list[torch.Tensor]:
    """The floating-point tensors in an output, on the CPU in float64."""
    if isinstance(value, torch.Tensor):
        return [value.detach().cpu().double()] if value.is_floating_point() else []
    items: Iterable[Any] = value.values() if isinstance(value, Mapping) else value
    return [t for item in items for t in _floats(item)] if isinstance(value, (Mapping, tuple, list)) else []


def _mean_square(output: Any) -> torch.Tensor:
    if isinstance(output, torch.Tensor):
        return output.square().mean()
    items = output.values() if isinstance(output, Mapping) else output
    parts = [_mean_square(item) for item in items if isinstance(item, (torch.Tensor, Mapping, tuple, list))]
    return torch.stack(parts).sum()


def _path(name: str) -> str:
    return "" if name == ROOT else name


@contextlib.contextmanager
def _watching(model: nn.Module, note: Callable[..., None]) -> Iterator[None]:
    """Calls ``note(name, module, output)`` for each call of a module, the second one as ``name[2]``."""
    counts: dict[str, int] = {}

    def hook(path: str) -> Callable[..., None]:
        def after(module: nn.Module, args: Any, output: Any) -> None:
            counts[path] = counts.get(path, 0) + 1
            name = path or ROOT
            note(name if counts[path] == 1 else f"{name}[{counts[path]}]", module, output)

        return after

    handles = [m.register_forward_hook(hook(path)) for path, m in model.named_modules()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def _in_precision(model: nn.Module, names: Sequence[str], value: str) -> Iterator[None]:
    """The products of the modules of these names, and not those of the modules in them, have the precision `value`."""
    entered: list[precision] = []
    outside = get_precision()

    def hooks(module: nn.Module, chosen: Precision | str) -> Iterator[Any]:
        yield module.register_forward_pre_hook(lambda *_: entered.append(precision(chosen)))
        yield module.register_forward_hook(lambda *_: entered.pop().__exit__(None, None, None), always_call=True)

    handles: list[Any] = []
    for path, module in model.named_modules():
        handles += hooks(module, value if (path or ROOT) in names else outside)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _flops(model: nn.Module, inputs: Any) -> dict[str, int]:
    """FLOPs of the products that each module makes itself in its calls, by path."""
    args, kwargs = inputs
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(*args, **kwargs)
    root = type(model).__name__
    total = {name: sum(ops.values()) for name, ops in counter.get_flop_counts().items()}
    paths = {path: total.get(f"{root}.{path}" if path else root, 0) for path, _ in model.named_modules()}
    return {path: flops - sum(f for p, f in paths.items() if _parent(p) == path) for path, flops in paths.items()}


def _parent(path: str) -> str | None:
    return path.rpartition(".")[0] if path else None


def _notes() -> tuple[str, ...]:
    from torus import runtime

    platform = runtime.platform_name()
    measured = "on a TPU" if platform == "tpu" else "with the passes computed one by one, in float32 arithmetic"
    return (f"Measured {measured}, in evaluation mode. Passes are those of a TPU's matrix unit.",)


def _show(error: float | None) -> str:
    return "" if error is None else f"{error:.1e}"
