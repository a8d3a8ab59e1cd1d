"""Faults of Captum itself, each shown on the CPU, where no device of ours takes part; docs/captum.md lists them.

A test that fails here says that a later Captum has mended something, and that the list can be made shorter.
"""

from __future__ import annotations

import pytest
import torch
from captum import attr, robust
from captum.influence import SimilarityInfluence
from captum.influence._core.similarity_influence import cosine_similarity
from torch import nn
from torch.nn import functional as F

from torus.explain.matrix.models import language_model, tokenizer, words

pytestmark = pytest.mark.filterwarnings("ignore:Input Tensor", "ignore:Setting")


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def built(make) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make().eval()


def gap(net: nn.Module, x: torch.Tensor) -> float:
    """How far DeepLift's sums are from f(x) - f(baseline), in units of that, over the batch."""
    baseline = draw(*x.shape, seed=5)
    found = attr.DeepLift(net).attribute(x, baseline, target=0).detach().flatten(1).sum(1)
    with torch.no_grad():
        change = (net(x) - net(baseline))[:, 0]
    return float((found - change).abs().max() / change.abs().max())


# DeepLift


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.MaxPool2d(3, stride=1)], ids=["apart", "overlapping"])
def test_deeplift_through_max_pooling_loses_what_it_should_attribute(pool):
    size = 4 if pool.stride == 2 else 6
    net = built(lambda: nn.Sequential(nn.Conv2d(1, 4, 1), nn.ReLU(), pool, nn.Flatten(), nn.Linear(4 * size**2, 2)))
    assert gap(net, draw(2, 1, 8, 8)) > 0.1


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.out = nn.Linear(5, 16), nn.Linear(16, 2)

    def forward(self, x):
        return self.out(F.relu(self.first(x)))


class Reused(Functional):
    def __init__(self) -> None:
        super().__init__()
        self.act, self.second = nn.ReLU(), nn.Linear(16, 16)

    def forward(self, x):
        return self.out(self.act(self.second(self.act(self.first(x)))))


def test_deeplift_does_not_see_a_functional_activation():
    assert gap(built(Functional), draw(3, 5)) > 0.05


def test_deeplift_does_not_take_a_module_that_is_used_twice():
    with pytest.raises(RuntimeError, match="used more than once"):
        gap(built(Reused), draw(3, 5))


@pytest.mark.parametrize("act", [nn.GELU, nn.SiLU])
def test_deeplift_takes_the_gradient_of_activations_that_it_has_no_rule_for(act):
    assert gap(built(lambda: nn.Sequential(nn.Linear(5, 16), act(), nn.Linear(16, 2))), 2 * draw(3, 5)) > 0.02


def test_deeplift_with_softmax_depends_on_the_batch():
    net = built(lambda: nn.Sequential(nn.Linear(5, 4), nn.Softmax(dim=1)))
    x = draw(4, 5)
    alone, together = (attr.DeepLift(net).attribute(rows, target=1)[0].detach() for rows in (x[:1], x))
    assert float((alone - together).norm() / alone.norm()) > 0.1


# Integrated gradients


def test_integrated_gradients_in_float64_have_weights_of_float32():
    """Of x ** 3, for which 50 nodes are exact."""
    x = draw(3, 4, dtype=torch.float64)
    found = attr.IntegratedGradients(lambda x: x.pow(3).sum(1)).attribute(x)
    error = float((found - x.pow(3)).abs().max() / x.pow(3).abs().max())
    assert 1e-11 < error < 1e-6


# Perturbation


def test_kernel_shap_of_one_feature_fails():
    # The second is what PyTorch says once its compiler was loaded, which turns the checks of distributions off.
    with pytest.raises((ValueError, RuntimeError), match=r"Simplex|probability tensor contains"):
        attr.KernelShap(lambda x: x.sum(1)).attribute(draw(1, 4), feature_mask=torch.zeros(1, 4, dtype=torch.long))


def test_ablation_of_a_language_model_takes_one_row_at_a_time():
    text = tokenizer()
    wrapped = attr.LLMAttribution(attr.FeatureAblation(built(language_model)), text)
    with pytest.raises(RuntimeError, match="Expected size 2 but got size 1"):
        wrapped.attribute(attr.TextTokenInput(words(9, 14, 15), text), target=words(5, 35), perturbations_per_eval=2)


def test_layer_permutation_picks_the_target_twice():
    net = built(lambda: nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)))
    with pytest.raises(AssertionError, match="Cannot choose target"):
        attr.LayerFeaturePermutation(net, net[1]).attribute(draw(3, 5), target=1)


def test_layer_ablation_does_not_repeat_targets():
    net = built(lambda: nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)))
    with pytest.raises(AssertionError, match="not valid"):
        attr.LayerFeatureAblation(net, net[1]).attribute(
            draw(3, 5), target=torch.tensor([0, 1, 2]), perturbations_per_eval=2
        )


# Tensors that are on the CPU whatever the inputs are on: the meta device has none there either


def test_similarity_compares_with_a_tensor_on_the_cpu():
    with pytest.raises(RuntimeError, match="device"):
        cosine_similarity(torch.ones(2, 3, device="meta"), torch.ones(2, 3, device="meta"))


def test_similarity_of_one_layer_fails(tmp_path):
    net = built(lambda: nn.Sequential(nn.Linear(5, 4), nn.ReLU()))
    with pytest.raises(AttributeError, match="'list' object"):
        SimilarityInfluence(net, ["1"], draw(4, 5), str(tmp_path), batch_size=2).influence(draw(2, 5), top_k=1)


def test_descent_draws_its_radius_on_the_cpu():
    attack = robust.PGD(lambda x: x)
    with pytest.raises(RuntimeError, match="device"):
        attack._random_point(torch.ones(1, 3, device="meta"), 1.0, "L2", 1)


def test_descent_with_an_l2_start_takes_one_example():
    attack = robust.PGD(lambda x: x)
    attack._random_point(draw(1, 3), 1.0, "L2", 1)
    with pytest.raises(RuntimeError):
        attack._random_point(draw(2, 3), 1.0, "L2", 1)


# Pictures


def test_text_in_colours_needs_a_notebook(monkeypatch):
    monkeypatch.setattr(attr.visualization, "HAS_IPYTHON", False)
    with pytest.raises(AssertionError, match="IPython"):
        attr.visualization.visualize_text([])


# Hooks of compiled models, which are PyTorch's


METHODS = {
    "DeepLift": lambda net, x: attr.DeepLift(net).attribute(x, torch.ones_like(x), target=1),
    "GuidedBackprop": lambda net, x: attr.GuidedBackprop(net).attribute(x, target=1),
    "LRP": lambda net, x: attr.LRP(net).attribute(x, target=1),
}


def compiled_before(method: str, device: str, backend: str) -> float:
    """The error when the model was compiled, and had run, before the method registers its hooks."""

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))

    x = draw(2, 5)
    expected = METHODS[method](built(make), x)
    torch._dynamo.reset()
    net = torch.compile(built(make).to(device), backend=backend, dynamic=False)
    first = torch.cat([x, x]) if method == "DeepLift" else x  # which runs inputs and baselines together
    net(first.to(device).requires_grad_()).sum().backward()
    found = METHODS[method](net, x.to(device)).detach().cpu()
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("method", ["GuidedBackprop"])
def test_pytorch_does_not_look_for_hooks_of_a_compiled_model(method):
    with torch._dynamo.config.patch(skip_nnmodule_hook_guards=True):
        assert compiled_before(method, "cpu", "eager") > 0.1


@pytest.mark.parametrize("method", METHODS)
def test_our_compiler_looks_for_them(method, device):
    assert compiled_before(method, device, "tpu") < 1e-6
