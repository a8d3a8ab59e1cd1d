"""What a training step costs: forward, backward and optimizer, with PyTorch's default settings on either side.

A sample runs several steps and then waits for the device; the loss is not read. CPU time is that of the whole process,
since the backward pass of a device runs in a thread of its own. The target is set against the faster of the two CPU
settings, which for steps as small as these is often one thread.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.places import TITLES, Place
from benchmarks.report import Figure, Result, ratio, spread
from benchmarks.worker import Worker, in_turn

MOST_RATIO = 4.0
LEARNING_RATE = 1e-3
BASELINES = ("cpu", "cpu_threads")
CLOCKS = {"wall": "wall time", "cpu": "CPU time of all threads"}
WORKLOADS = {
    "MLP, SGD": ("mlp", "SGD"),
    "MLP, AdamW": ("mlp", "AdamW"),
    "CNN, SGD": ("cnn", "SGD"),
    "tiny GPT, AdamW": ("gpt", "AdamW"),
}
JUDGED = ("MLP, SGD", "MLP, AdamW")


def mlp(width: int = 64, rows: int = 16) -> tuple[Any, Any, Any]:
    """Three layers `width` wide, a batch of `rows`."""
    import torch
    from torch import nn

    layers = [nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)]
    return nn.Sequential(*layers), torch.randn(rows, width), torch.randint(width, (rows,))


def cnn() -> tuple[Any, Any, Any]:
    """Two convolutions with batch norm and pooling, a batch of 8 images of 32x32."""
    import torch
    from torch import nn

    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(32, 10)),
    )
    return model, torch.randn(8, 3, 32, 32), torch.randint(10, (8,))


def gpt(layers: int = 2, width: int = 64, heads: int = 4, tokens: int = 32, words: int = 256) -> tuple[Any, Any, Any]:
    """A causal transformer, and 4 sequences of `tokens` out of `words`."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            split = self.qkv(self.norms[0](x)).view(4, tokens, 3, heads, width // heads)
            q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(4, tokens, width))
            return x + self.mlp(self.norms[1](x))

    blocks = [Block() for _ in range(layers)]
    model = nn.Sequential(
        nn.Embedding(words, width), *blocks, nn.LayerNorm(width), nn.Linear(width, words), nn.Flatten(0, 1)
    )
    return model, torch.randint(words, (4, tokens)), torch.randint(words, (4 * tokens,))


@functools.cache
def training(workload: str, device: str) -> Callable[[], Any]:
    """A function that does one step of `workload` and returns the loss, still on the device."""
    import torch

    name, optimizer_name = WORKLOADS[workload]
    torch.manual_seed(0)
    return training_step(*{"mlp": mlp, "cnn": cnn, "gpt": gpt}[name](), optimizer_name, device)


def training_step(model: Any, x: Any, y: Any, optimizer_name: str, device: str) -> Callable[[], Any]:
    """A function that does one step on the batch (x, y), both on the CPU, and returns the loss."""
    import torch

    model, x, y = model.to(device), x.to(device), y.to(device)
    optimizer = getattr(torch.optim, optimizer_name)(model.parameters(), lr=LEARNING_RATE)

    def step() -> Any:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def sample(place: Place, workload: str, number: int) -> dict[str, float]:
    """Microseconds for one step, the mean of `number`: of the clock, and of CPU time in all threads of the process."""
    step = training(workload, place.device)
    place.synchronize()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(number):
        step()
    place.synchronize()
    return {
        "wall": 1e6 * (time.perf_counter() - wall) / number,
        "cpu": 1e6 * (time.process_time() - cpu) / number,
    }


def run(workers: Sequence[Worker], rounds: int, quick: bool) -> Result:
    """Measure every workload in the places of `workers`, "tpu" among them; quick: the MLP with SGD only."""
    figures, rows, samples = [], [], {}
    for workload in list(WORKLOADS)[: 1 if quick else None]:
        samples[workload] = _measure(workers, workload, rounds, quick)
        times = {
            place: {clock: [found[clock] for found in founds] for clock in CLOCKS}
            for place, founds in samples[workload].items()
        }
        for clock, meaning in CLOCKS.items():
            rows.append([f"{workload}, {meaning}", *(spread(found[clock], "us") for found in times.values())])
            figures += _figures(workload, clock, times)
    return Result(figures, ["one training step", *(TITLES[w.place or ""] for w in workers)], rows, samples)


def _measure(workers: Sequence[Worker], workload: str, rounds: int, quick: bool) -> dict[str, list[Any]]:
    number = 2 if quick else 20 if workload in JUDGED else 3
    for worker in workers:
        worker.call("benchmarks.steps:sample", workload=workload, number=min(number, 10))
    return in_turn(workers, rounds, "benchmarks.steps:sample", workload=workload, number=number)


def _figures(workload: str, clock: str, times: dict[str, dict[str, list[float]]]) -> list[Figure]:
    faster = min(BASELINES, key=lambda baseline: statistics.median(times[baseline]["wall"]))
    return [
        ratio(
            "step",
            f"ratio tpu / {TITLES[baseline]}, {workload}, {CLOCKS[clock]}",
            times["tpu"][clock],
            times[baseline][clock],
            MOST_RATIO if workload in JUDGED and baseline == faster else None,
        )
        for baseline in BASELINES
    ]
