"""Recorded or not, fused or not: the same values, random streams included."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.eager.fusing import WAYS, running

Job = Callable[[], list[Tensor]]


def host(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def tensor(*shape: int, seed: int = 0) -> Tensor:
    return host(shape, seed).to("tpu")


def elementwise() -> list[Tensor]:
    x = tensor(5, 7)
    y = (x * 2 + 1).sigmoid() - x.abs().sqrt() / 3
    return [y, y > 0, torch.where(y > 0, y, x), y.to(torch.bfloat16) * 3, (y * 100).to(torch.int64) // 7]


def views_and_writes() -> list[Tensor]:
    x = torch.zeros(6, 4, device="tpu")
    x[1].add_(2)
    x.t()[2].fill_(7)
    x[::2, 1:] -= 1
    window = x.as_strided((2, 3), (4, 1), 5)
    window.mul_(10)
    flat = x.view(-1)
    flat[3:9].copy_(flat[12:18].clone())
    flat.index_fill_(0, torch.tensor([0, 23], device="tpu"), 5.0)
    return [x, window, x.diagonal().clone(), flat.unfold(0, 4, 3).sum(-1)]


def matrices() -> list[Tensor]:
    a, b = tensor(8, 6), tensor(6, 9, seed=1)
    q = (a @ b).softmax(-1)
    return [q, torch.baddbmm(q[None], a[None], b[None], beta=0.5), F.layer_norm(q, (9,)), q.argmax(-1), q.cumsum(0)]


def reductions() -> list[Tensor]:
    x = tensor(7, 11)
    return [x.sum(), x.mean(0), x.var(1), *x.max(1), *x.sort(0), x.logsumexp(0), x.norm(), *x.topk(3)]


def random_numbers() -> list[Tensor]:
    x = torch.rand(33, device="tpu")
    torch.randn(4, device="tpu")  # nobody wants it, and it moves the stream on
    y = torch.empty(9, device="tpu").normal_(1, 2)
    z = torch.randint(100, (17,), device="tpu")
    return [x, y, z, torch.randperm(12, device="tpu"), F.dropout(x, 0.5), torch.bernoulli(x), x.multinomial(4)]


def random_state() -> list[Tensor]:
    generator = torch.Generator("tpu").manual_seed(3)
    first = torch.rand(3, device="tpu", generator=generator)
    state = torch.tpu.get_rng_state()
    a = torch.rand(3, device="tpu")
    torch.tpu.set_rng_state(state)
    b = torch.rand(3, device="tpu")
    return [first, a, b, a == b, torch.rand(3, device="tpu", generator=generator)]


def lists_of_tensors() -> list[Tensor]:
    xs = [tensor(3, 2, seed=i) for i in range(4)]
    ys = torch._foreach_mul(xs, 2)
    torch._foreach_add_(ys, xs, alpha=0.5)
    torch._foreach_addcmul_(ys, xs, xs, 3.0)
    torch._foreach_lerp_(xs, ys, 0.25)
    return [*xs, *ys, *torch._foreach_norm(xs)]


JOBS: list[Job] = [
    elementwise,
    views_and_writes,
    matrices,
    reductions,
    random_numbers,
    random_state,
    lists_of_tensors,
]


def results(job: Job, way: str) -> list[Tensor]:
    """What the job gives in a mode: the second time, so that what is fused in the background may be there."""
    with running(way):
        for _ in range(2):
            torch.manual_seed(5)
            found = [t.cpu() for t in job()]
    return found


@pytest.mark.parametrize("way", WAYS[1:])
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
def test_modes_agree(job: Job, way: str, device: str) -> None:
    for expected, actual in zip(results(job, "strict"), results(job, way), strict=True):
        torch.testing.assert_close(actual, expected, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("job", [random_numbers, random_state], ids=lambda job: job.__name__)
def test_random_numbers_are_the_same_bits(job: Job, device: str) -> None:
    strict = results(job, "strict")
    for way in WAYS[1:]:
        for expected, actual in zip(strict, results(job, way), strict=True):
            assert torch.equal(actual, expected) or torch.allclose(actual, expected, rtol=1e-6)
    assert torch.equal(strict[0], results(job, "foreground")[0])


def test_the_stream_goes_on_over_a_change_of_mode(device: str) -> None:
    drawn = []
    for ways in (("strict",) * 4, ("foreground", "strict", "never", "strict"), ("never",) * 4):
        torch.manual_seed(7)
        parts = []
        for way in ways:
            with running(way):
                parts.append(torch.rand(5, device=device))
        drawn.append(torch.cat(parts).cpu())
    assert torch.equal(drawn[0], drawn[1]) and torch.equal(drawn[0], drawn[2])


class Net(nn.Module):
    """A little of everything that training draws on."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 4)
        self.drop = nn.Dropout(0.3)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.norm(self.embed(tokens)).mean(1)
        return self.down(self.drop(F.gelu(self.up(x))))


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adamw-foreach": lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=True),
    "adamw-fused": lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True),
    "adam-loop": lambda p: torch.optim.Adam(p, lr=1e-2, foreach=False, amsgrad=True),
}


def train(make: Callable[..., torch.optim.Optimizer], way: str) -> list[Tensor]:
    with running(way):
        torch.manual_seed(0)
        model = Net().to("tpu")
        optimizer = make(model.parameters())
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
        tokens = torch.arange(24).reshape(6, 4).remainder(10).to("tpu")
        target = torch.arange(6).remainder(4).to("tpu")
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(tokens), target)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            losses.append(loss.detach())
        return [torch.stack(losses).cpu(), *(p.detach().cpu() for p in model.parameters())]


@pytest.mark.slow
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_training_agrees(make: Callable[..., torch.optim.Optimizer], device: str) -> None:
    expected = train(make, "strict")
    for way in WAYS[1:]:
        for actual, wanted in zip(train(make, way), expected, strict=True):
            torch.testing.assert_close(actual, wanted, rtol=2e-5, atol=2e-6)


def test_d07_a_product_that_feeds_a_sum_is_no_further_from_float64(device: str) -> None:
    x, y = host((4096,), 1), host((4096,), 2)
    z = -(x * y)  # what is left is the rounding of the product
    exact = x.double() * y.double() + z.double()
    with running("foreground"):
        fused = (x.to(device) * y.to(device) + z.to(device)).cpu()
    assert (fused - exact).abs().max() <= (x * y + z - exact).abs().max()
