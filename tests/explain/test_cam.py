"""Class activation maps against their formulas, written out with loops and autograd."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torus.explain import Explanation, explain


class Net(nn.Module):
    """A convolution, and a head that is linear, so that higher derivatives of its exponential are known."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.features, self.head = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU()), nn.Linear(4 * 5 * 6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).flatten(1))


X = torch.randn(2, 2, 5, 6, generator=torch.Generator().manual_seed(1))


def maps(method: str, **options: object) -> Explanation:
    return explain(Net().eval(), X, 1, method=method, layer="features", **options)  # type: ignore[arg-type]


def known() -> tuple[torch.Tensor, torch.Tensor]:
    """The layer's output, and the gradient there."""
    net = Net()
    return net.features(X).detach(), net.head.weight[1].detach().view(4, 5, 6).expand(2, 4, 5, 6)


def test_grad_cam_and_hires_cam_and_layer_cam() -> None:
    output, gradient = known()
    weighed = {
        "grad_cam": gradient.mean((2, 3), keepdim=True) * output,
        "hires_cam": gradient * output,
        "layer_cam": gradient.relu() * output,
    }
    for method, terms in weighed.items():
        torch.testing.assert_close(maps(method).attribution, terms.sum(1, keepdim=True).relu())
        torch.testing.assert_close(maps(method, signed=True).attribution, terms.sum(1, keepdim=True))


def test_a_linear_head_is_explained_completely_by_hires_cam() -> None:
    found = maps("hires_cam", signed=True)
    bias = Net().head.bias[1].detach()
    torch.testing.assert_close(found.attribution.sum((1, 2, 3)) + bias, found.values)


def test_grad_cam_plus_plus_from_derivatives_of_the_exponential() -> None:
    output, gradient = known()
    expected = torch.zeros(2, 1, 5, 6)
    for row in range(2):
        for channel in range(4):
            score = lambda a: (a * gradient[row, channel]).sum().exp()  # noqa: B023, E731
            weight = torch.tensor(0.0)
            for place in [(i, j) for i in range(5) for j in range(6)]:
                a = output[row, channel].double().requires_grad_()
                first = torch.autograd.grad(score(a), a, create_graph=True)[0][place]
                second = torch.autograd.grad(first, a, create_graph=True)[0][place]
                third = torch.autograd.grad(second, a)[0][place]
                share = second / (2 * second + a.sum() * third)
                weight = weight + (share * gradient[row, channel][place].relu()).detach().float()
            expected[row, 0] += weight * output[row, channel]
    torch.testing.assert_close(maps("grad_cam_plus_plus").attribution, expected.relu(), rtol=1e-4, atol=1e-6)


def test_the_device_agrees_and_sizes_are_on_request(device: str) -> None:
    method = "grad_cam_plus_plus"
    found = explain(Net().eval().to(device), X.to(device), 1, method=method, layer="features", size=(10, 12))
    assert found.attribution.shape == (2, 1, 10, 12)
    torch.testing.assert_close(found.attribution.cpu(), maps(method, size=(10, 12)).attribution, rtol=2e-5, atol=1e-6)


def test_a_layer_without_space_is_refused() -> None:
    with pytest.raises(ValueError, match="channels and space"):
        explain(Net().eval(), X, 1, method="grad_cam", layer="head")
