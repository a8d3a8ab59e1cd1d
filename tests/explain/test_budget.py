"""A budget holds, or is refused before anything runs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torus.explain import explain, model_function
from torus.explain.budget import chunk_within, in_bytes
from torus.explain.live import peak_bytes


def convolutions() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2048, 4)
    ).eval()


def images() -> torch.Tensor:
    return torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("what", ["value", "grad"])
def test_the_estimate_is_what_a_strict_run_takes(what: str, device: str) -> None:
    ask = getattr(model_function(convolutions().to(device), images().to(device), 1), what)
    points = (torch.rand(8, 3, 32, 32, device=device),)
    estimate = peak_bytes(ask, points, 8)
    torch.tpu.synchronize()
    torch.tpu.reset_peak_memory_stats()
    before = torch.tpu.memory_allocated() - points[0].nbytes
    result = ask(points)
    torch.tpu.synchronize()
    assert torch.tpu.max_memory_allocated() - before == pytest.approx(estimate, rel=0.01)
    del result


def test_an_estimate_runs_nothing_and_leaves_nothing() -> None:
    net = convolutions()
    seen = []
    handle = net[0].register_forward_hook(lambda module, args, output: seen.append(type(output).__name__))
    peak_bytes(model_function(net, images(), 1).grad, (images(),), 64)
    handle.remove()
    assert seen == ["FakeTensor"]
    assert all(parameter.grad is None and type(parameter) is nn.Parameter for parameter in net.parameters())


@pytest.mark.parametrize("mode", ["strict", "fused"])
@pytest.mark.parametrize(
    ("method", "options"),
    [("shapley_sampling", {"segments": torch.arange(1024).reshape(32, 32) // 64}), ("saliency", {})],
)
def test_the_peak_stays_within_the_budget(method: str, options: dict[str, object], mode: str, device: str) -> None:
    net, x = convolutions().to(device), images().to(device)
    torch.tpu.synchronize()
    budget = torch.tpu.memory_allocated() + (1 << 20)
    found = explain(net, x, 1, method=method, budget=budget, mode=mode, tol=0.5, **options)
    assert found.certificate.peak_memory is not None
    assert found.certificate.peak_memory <= budget
    assert found.certificate.passed


def test_five_hundred_samples_run_within_a_budget(device: str) -> None:
    """At once they would take 1,000 rows, some 60 MiB."""
    net, x = convolutions().to(device), images().to(device)
    torch.tpu.synchronize()
    budget = torch.tpu.memory_allocated() + (5 << 20)
    found = explain(net, x, 1, method="expected_gradients", samples=512, tol=1e-9, budget=budget)
    assert found.certificate.gradients == 1024
    assert found.certificate.peak_memory is not None
    assert found.certificate.peak_memory <= budget
    with pytest.raises(ValueError, match="too small"):
        explain(net, x, 1, method="expected_gradients", budget=budget - (4 << 20))


def test_a_larger_budget_runs_more_at_once() -> None:
    function, points = model_function(convolutions(), images(), 1), (images(),)
    chunks = [chunk_within(budget << 20, function, points, gradients=True) for budget in (1, 4, 16)]
    assert chunks[0] >= 1
    assert 3 * chunks[0] <= chunks[1] <= 5 * chunks[0] + 5
    assert 3 * chunks[1] <= chunks[2]
    assert chunk_within(4 << 20, function, points, gradients=False) > chunks[1]


def test_one_copy_that_does_not_fit_is_refused_before_it_runs() -> None:
    net = convolutions()
    seen = []
    net[5].register_forward_hook(lambda module, args, output: seen.append(type(output).__name__))
    with pytest.raises(ValueError, match=r"too small: 0 B are in use.* A budget of \d+(\.\d+)? KiB would do"):
        explain(net, images(), 1, method="saliency", budget="100KiB")
    assert seen == ["FakeTensor"]


def test_what_reads_values_has_no_estimate() -> None:
    with pytest.raises(ValueError, match="give `chunk`"):
        explain(lambda x: x.sum(1) if x.sum() > 0 else x.prod(1), torch.ones(1, 3), method="saliency", budget="1GiB")


@pytest.mark.parametrize(
    ("text", "size"), [("2GiB", 2 << 30), ("500 MB", 500_000_000), (1000, 1000), ("1.5kib", 1536), ("7", 7)]
)
def test_budgets_in_words(text: str | int, size: int) -> None:
    assert in_bytes(text) == size


@pytest.mark.parametrize("text", ["much", "2 parsecs", "1.2.3GB", -5])
def test_what_is_no_budget(text: str | int) -> None:
    with pytest.raises(ValueError, match="'2GiB'"):
        in_bytes(text)


class Language(nn.Module):
    """What a causal language model is to a target: logits for each position, or for some."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(50, 8), nn.Linear(8, 50)
        self.kept: object = None

    def forward(self, ids: torch.Tensor, logits_to_keep: int | list[int] = 0) -> torch.Tensor:
        self.kept = logits_to_keep
        hidden = self.embedding(ids).cumsum(1).tanh()
        return self.head(hidden[:, slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep])


def test_only_the_logits_of_the_target_are_made() -> None:
    net, ids = Language().eval(), torch.arange(12).reshape(2, 6)
    for target, kept in (
        ((5, 7), [5]),
        ((-1, [3, 4]), [-1]),
        (([2, 4], 7), [2, 4]),
        ((torch.tensor([4, 2]), 1), [2, 4]),
    ):
        whole = net(ids)
        values = model_function(net, ids, target).value((ids,))
        assert net.kept == kept
        places = [torch.as_tensor(index).expand(2) for index in target]
        torch.testing.assert_close(values, whole[torch.arange(2), places[0], places[1]])


def test_a_position_that_is_not_there_is_named() -> None:
    net, ids = Language().eval(), torch.arange(12).reshape(2, 6)
    with pytest.raises(ValueError, match="out of range"):
        model_function(net, ids, (6, 1)).value((ids,))
