"""Captum's other packages: metrics, influence, concepts, robustness, gates, and pictures."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from captum import attr, influence, metrics, module, robust
from torch import nn

from torus.explain.matrix.cases import Table
from torus.explain.matrix.models import Setup

CASES = Table()


@CASES.case("infidelity", "mlp", "cnn", covers=("infidelity_perturb_func_decorator",))
def _(s: Setup) -> Any:
    @metrics.infidelity_perturb_func_decorator(multiply_by_inputs=False)  # type: ignore[untyped-decorator]
    def nearby(x: torch.Tensor) -> torch.Tensor:
        return x - 0.05 * torch.randn_like(x)

    given = attr.Saliency(s.model).attribute(s.x, target=s.target, abs=False)
    return metrics.infidelity(s.model, nearby, s.x, given, target=s.target, n_perturb_samples=4, normalize=True)


@CASES.case("sensitivity_max", "mlp", "cnn")
def _(s: Setup) -> Any:
    method = attr.InputXGradient(s.model)
    return metrics.sensitivity_max(method.attribute, s.x, target=s.target, n_perturb_samples=3)


def _probabilities(s: Setup) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: s.model(x).softmax(-1)


@CASES.case("FGSM", "mlp", "cnn")
def _(s: Setup) -> Any:
    return robust.FGSM(_probabilities(s), upper_bound=1.0).perturb(s.x, 0.05, target=s.target)


def _descent(s: Setup, norm: str) -> Any:
    """Of one example: Captum cannot start an L2 attack on more, and draws its radius on the default device."""
    with s.device:
        return robust.PGD(_probabilities(s)).perturb(
            s.x[:1], radius=0.3, step_size=0.1, step_num=3, target=s.target[:1], random_start=True, norm=norm
        )


for _norm in ("Linf", "L2"):
    CASES.case(f"PGD: {_norm}", "mlp", "cnn")(partial(_descent, norm=_norm))


@CASES.case("MinParamPerturbation", "mlp")
def _(s: Setup) -> Any:
    search = robust.MinParamPerturbation(s.model, lambda x, scale: x - scale * x.sign(), "scale", 0.0, 5.0, 0.25)
    found, scale = search.evaluate(s.x[:1], target=int(s.model(s.x[:1]).argmax()))
    return s.x[:1] if found is None else found, -1.0 if scale is None else scale


@CASES.case("AttackComparator", "mlp")
def _(s: Setup) -> Any:
    comparator = robust.AttackComparator(s.model, lambda out, target: (out.argmax(1) == target).float())
    attack = robust.FGSM(_probabilities(s))
    comparator.add_attack(attack, "fgsm", attack_kwargs={"epsilon": 0.5}, additional_attack_arg_names=["target"])
    return comparator.evaluate(s.x, target=s.target)


class _Nearest:
    """Exact nearest neighbours by inner product, in the place of an approximate index."""

    def setup(self, data: torch.Tensor) -> None:
        self.data = data

    def get_nearest_neighbors(self, query: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        distance, index = torch.topk(query @ self.data.T, k)
        return index, distance


def _training(s: Setup) -> tuple[torch.utils.data.Dataset[Any], dict[str, torch.Tensor]]:
    draw = torch.Generator().manual_seed(3)
    x, y = torch.randn(8, 6, generator=draw), torch.randint(0, 4, (8,), generator=draw)
    weights = {name: value.clone() for name, value in s.net.state_dict().items()}
    return torch.utils.data.TensorDataset(x.to(s.x), y.to(s.device)), weights


def _influence(s: Setup, name: str) -> Any:
    data, weights = _training(s)
    common = {"checkpoints_load_func": lambda _, state: s.net.load_state_dict(state) and 1.0, "batch_size": 4}
    each, together = (nn.CrossEntropyLoss(reduction=how) for how in ("none", "sum"))
    if name == "TracInCP":
        tool = influence.TracInCP(s.model, data, [weights], loss_fn=each, **common)
    elif name == "NaiveInfluenceFunction":
        tool = influence.NaiveInfluenceFunction(
            s.model, data, weights, layers=["out"], hessian_reg=0.1, loss_fn=each, **common
        )
    else:
        more = {"nearest_neighbors": _Nearest(), "projection_dim": 20} if name == "TracInCPFastRandProj" else {}
        kind = getattr(influence, name)
        tool = kind(s.model, s.net.get_submodule("out"), data, [weights], loss_fn=together, **common, **more)
    if name == "TracInCPFastRandProj":
        return tool.influence((s.x, s.target), k=3)
    return tool.influence((s.x, s.target))


for _name in ("TracInCP", "TracInCPFast", "TracInCPFastRandProj", "NaiveInfluenceFunction"):
    CASES.case(_name, "mlp")(partial(_influence, name=_name))


class _Rows(torch.utils.data.Dataset[torch.Tensor]):
    """The rows of a tensor, without a tuple around each."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index]


@CASES.case("SimilarityInfluence", "mlp")
def _(s: Setup) -> Any:
    """Of two layers: with one, Captum wraps the activations twice and fails. It collects similarities on the CPU."""
    from captum.influence._core.similarity_influence import cosine_similarity

    data, _ = _training(s)
    rows = torch.stack([data[i][0] for i in range(8)])
    with tempfile.TemporaryDirectory() as folder:
        tool = influence.SimilarityInfluence(
            s.model,
            ["act1", "act2"],
            _Rows(rows),
            folder,
            batch_size=4,
            similarity_metric=lambda test, train: cosine_similarity(test.cpu(), train.cpu()),
        )
        index, score = tool.influence(s.x, top_k=3)["act2"]
    return score, index


@CASES.case("TCAV", "mlp", covers=("CAV", "Concept", "DefaultClassifier"), needs="sklearn")
def _(s: Setup) -> Any:
    from captum.concept import TCAV, Concept

    draw = torch.Generator().manual_seed(4)
    concepts = []
    for i in range(2):
        rows = (torch.randn(12, 6, generator=draw) + 2.0 * i).to(s.x)
        concepts.append(Concept(i, f"concept {i}", torch.utils.data.DataLoader(_Rows(rows), batch_size=4)))
    with tempfile.TemporaryDirectory() as folder:
        found = TCAV(s.model, ["act1"], save_path=folder).interpret(s.x, [concepts], target=1)
    return [score["magnitude"] for layers in found.values() for score in layers.values()]


def _gates(s: Setup, name: str) -> Any:
    gates = getattr(module, name)(6).to(s.x).train()
    gated, penalty = gates(s.x)
    return gated, penalty, gates.get_gate_values()


for _name in ("BinaryConcreteStochasticGates", "GaussianStochasticGates"):
    CASES.case(_name, "mlp")(partial(_gates, name=_name))


@CASES.case("visualization", "cnn", needs="matplotlib")
def _(s: Setup) -> Any:
    found = attr.Saliency(s.model).attribute(s.x, target=s.target)[0].detach().cpu().permute(1, 2, 0).numpy()
    _, axis = attr.visualization.visualize_image_attr(found, sign="absolute_value", use_pyplot=False)
    return torch.as_tensor(axis.images[0].get_array())


@CASES.case("ImageMaskInput", "cnn", needs="PIL")
def _(s: Setup) -> Any:
    from PIL import Image

    pixels = torch.randint(0, 256, (16, 16, 3), generator=torch.Generator().manual_seed(5), dtype=torch.uint8)

    def tensor(image: Any) -> torch.Tensor:
        import numpy as np

        return torch.as_tensor(np.array(image)).permute(2, 0, 1)[None].to(s.x) / 255

    image = attr.ImageMaskInput(Image.fromarray(pixels.numpy()), mask=s.mask[0, 0].cpu(), processor_fn=tensor)
    whole = image.to_tensor()
    rows = [s.model(image.to_model_input(whole * keep)) for keep in torch.eye(whole.shape[1])]
    return torch.cat(rows)
