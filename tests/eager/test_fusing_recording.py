"""What is recorded runs nothing, and of what is recorded only what is wanted comes to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.eager.fusing import Counts, forget, pending, running, settled


@pytest.fixture(autouse=True)
def _recording() -> Iterator[None]:
    with running():
        yield


def factories() -> object:
    like = torch.zeros(2, 3, device="tpu")
    return [
        like,
        torch.ones(3, device="tpu"),
        torch.full((2,), 4.5, device="tpu"),
        torch.arange(7, device="tpu"),
        torch.arange(0, 1, 0.25, device="tpu"),
        torch.linspace(0, 1, 5, device="tpu"),
        torch.eye(3, device="tpu"),
        torch.ones_like(like),
        like.new_full((4,), 2),
        torch.empty_like(like).fill_(3),
    ]


def views() -> object:
    x = torch.ones(4, 6, device="tpu")
    return [
        (x + 1).t()[1:].reshape(-1),
        x.view(2, 12)[:, ::3] * 2,
        x[1] + x[:, 2:6].sum(0).sum(),
        x.expand(3, 4, 6) * x,
    ]


def writes() -> object:
    x = torch.zeros(4, 6, device="tpu")
    x[1] = 3
    x[:, 2:4].add_(1).mul_(2)
    x.t()[0].copy_(x[0, :4])
    x.masked_fill_(x > 3, 0.5)
    x.index_add_(0, torch.arange(2, device="tpu"), torch.ones(2, 6, device="tpu"))
    torch.add(x, 1, out=torch.empty(4, 6, device="tpu"))
    x.scatter_(1, torch.zeros(4, 1, dtype=torch.int64, device="tpu"), 9.0)
    x[torch.arange(2, device="tpu")] = 2.0
    return x


def random() -> object:
    x = torch.randn(5, device="tpu")
    x.uniform_().bernoulli_(0.5)
    return [
        x,
        F.dropout(x, 0.2),
        torch.randperm(6, device="tpu"),
        torch.randint(3, (4,), device="tpu"),
        torch.rand_like(x),
    ]


def lists() -> object:
    xs = [torch.ones(3, device="tpu") for _ in range(3)]
    torch._foreach_add_(xs, 1)
    torch._foreach_mul_(xs, [1.0, 2.0, 3.0])
    torch._foreach_addcdiv_(xs, xs, xs, 0.5)
    return [xs, torch._foreach_sqrt(xs), torch._foreach_norm(xs)]


def training(make: Callable[..., torch.optim.Optimizer]) -> object:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).to("tpu")
    optimizer = make(model.parameters())
    loss = model(torch.ones(5, 3, device="tpu")).square().mean()
    loss.backward()
    return model, optimizer, loss


RECORDED: dict[str, Callable[[], object]] = {
    "factories": factories,
    "views": views,
    "writes": writes,
    "random": random,
    "lists": lists,
    "backward": lambda: training(torch.optim.SGD),
}


@pytest.mark.parametrize("job", RECORDED.values(), ids=RECORDED)
def test_what_is_recorded_runs_nothing(job: Callable[[], object], device: str) -> None:
    settled()
    counts = Counts()
    kept = job()
    assert (counts.flushes, counts.programs, counts.host_reads) == (0, 0, 0)
    settled()
    assert counts.flushes == 1
    del kept


STEPS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adamw-foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "adamw-fused": lambda p: torch.optim.AdamW(p, fused=True),
    "adam-loop": lambda p: torch.optim.Adam(p, foreach=False),
}


@pytest.mark.parametrize("make", STEPS.values(), ids=STEPS)
def test_an_optimizer_step_is_recorded(make: Callable[..., torch.optim.Optimizer], device: str) -> None:
    """The end of backward is a cut, so the step is recorded from its first op to its last."""
    _, optimizer, loss = training(make)
    settled(loss)
    counts = Counts()
    optimizer.step()
    assert (counts.flushes, counts.host_reads) == (0, 0)
    settled()
    assert counts.flushes == 1


def test_the_end_of_backward_is_a_cut(device: str) -> None:
    model, _, loss = training(torch.optim.SGD)
    settled(loss)
    counts = Counts()
    model(torch.ones(5, 3, device=device)).sum().backward()
    assert counts.flushes == 0
    y = model[0].weight.grad * 2
    assert counts.flushes == 1 and pending(y)
    y = y * 2
    assert counts.flushes == 1


def test_dead_values_are_no_results(device: str) -> None:
    (x,) = settled(torch.ones(1000, 1000, device=device))
    for _ in range(2):
        torch.tpu.reset_accumulated_memory_stats()
        y = x + 1
        z = (y * 2).sum()
        del y
        settled()
        assert torch.tpu.memory_stats()["allocated_bytes.all.allocated"] == z.element_size()


def test_dead_ops_do_not_run(device: str) -> None:
    forget()
    (x,) = settled(torch.ones(4, device=device))
    torch.tpu.fusing = "never"
    counts = Counts()
    y = x + 1
    x.cos().sin()
    del x
    settled(y)
    assert counts.programs == 1


def test_a_trace_nobody_wants_runs_nothing(device: str) -> None:
    (x,) = settled(torch.ones(4, device=device))
    counts = Counts()
    (x + 1).cos()
    settled()
    assert counts.programs == 0
    assert (x + 1).tolist() == [2.0] * 4


def test_dead_ops_of_one_segment_that_another_would_use(device: str, recwarn: pytest.WarningsRecorder) -> None:
    """A long chain that nobody wants is cut in the middle; what is wanted lies behind the cut, among the dead ops."""
    (x,) = settled(torch.full((4,), 0.5, device=device))
    choose = torch.Generator().manual_seed(1)
    order = torch.randint(4, (1300,), generator=choose).tolist()
    for _ in range(2):
        y = x
        for kind in order:
            y = (Tensor.sin, Tensor.cos, Tensor.tanh, Tensor.neg)[kind](y)
        z = (x + 2) * 3
        del y
        assert z.tolist() == [7.5] * 4
    assert [str(warning.message) for warning in recwarn] == []


def test_writes_that_are_written_over_do_not_run(device: str) -> None:
    forget()
    (x,) = settled(torch.zeros(4, device=device))
    torch.tpu.fusing = "never"
    counts = Counts()
    y = x + 3
    for _ in range(5):
        x.cos_()
    x.copy_(y)
    settled()
    assert counts.programs == 1 and x.tolist() == [3.0] * 4


def test_results_of_one_op_may_be_wanted_one_by_one(device: str) -> None:
    (x,) = settled(torch.arange(12.0, device=device).reshape(3, 4))
    values, indices = x.max(1)
    del values
    assert indices.tolist() == [3, 3, 3]
    values, indices = x.max(1)
    del indices
    assert values.tolist() == [3.0, 7.0, 11.0]


def test_an_alias_keeps_a_value_wanted(device: str) -> None:
    (x,) = settled(torch.ones(4, device=device))
    y = x + 1
    row = y[2:]
    kept = y.detach()
    del y
    assert row.tolist() == [2.0, 2.0] and kept.tolist() == [2.0] * 4


def test_a_graph_that_is_kept_keeps_its_saved_values(device: str) -> None:
    (x,) = settled(torch.full((3,), 2.0, device=device).requires_grad_())
    loss = (x * x).exp().sum()
    settled()
    (grad,) = torch.autograd.grad(loss, x)
    expected = 2 * x.detach().cpu() * (x.detach().cpu() ** 2).exp()
    torch.testing.assert_close(grad.cpu(), expected)


def test_structure_is_the_key_and_numbers_are_not(device: str) -> None:
    (x,) = settled(torch.arange(20.0, device=device))

    def job(i: int) -> Tensor:
        return (x[i : i + 4] * (i + 0.5) + i) ** 2

    settled(job(1))
    counts = Counts()
    for i in range(1, 12):
        expected = ((torch.arange(20.0)[i : i + 4] * (i + 0.5)) + i) ** 2
        torch.testing.assert_close(job(i).cpu(), expected)
    assert counts.compiles == counts.cache_hits == 0
    assert counts.programs == counts.flushes == 11
