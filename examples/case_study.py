"""The cells of the notebook beside it, which `examples/make_notebook.py` makes."""

# %% [markdown]
# # Attribution on an accelerator: seven things to look at
#
# A work log of Captum on TPUs found what matters there: how many programs a call launches, what it copies to and from
# the host, the precision of products, integrals that had not converged, memory set by the logits, chips that help only
# when one is too small, and the mode in which ops run. Each section here measures one of them, with Captum as it is and
# with `torus.explain`. Without a TPU the device is XLA on the CPU: counts, bytes and errors are those of the programs,
# times are those of the machine. `docs/case-study.md` says more about each, with commands.

# %%
import copy
import os

os.environ.setdefault("TORUS_DEVICE_COUNT", "4")  # four devices of this process; section 6 uses them

import statistics
import time
from functools import partial

import torch
from captum.attr import IntegratedGradients, ShapleyValueSampling
from torch import nn

import torus  # noqa: F401  makes the device "tpu" exist
from torus.explain import explain, model_function
from torus.explain.modes import running

torch.tpu.fusing = "foreground"  # fused programs are compiled at once, so that counts are the same each time
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3)).eval()
x = torch.randn(2, 12)
on_device, x_device = copy.deepcopy(net).to("tpu"), x.to("tpu")


def counted(call, mode):
    """Programs, reads by the host and writes by it in a warm call."""
    with running(mode):
        for _ in range(3):
            call()
            torch.tpu.synchronize()
        before = torch.tpu.counters()
        call()
        torch.tpu.synchronize()
        after = torch.tpu.counters()
    return ", ".join(f"{after[name] - before[name]} {name}" for name in ("programs", "host_reads", "host_writes"))


# %% [markdown]
# ## 1. Programs a call
#
# Fifty steps of integrated gradients. Op by op, a call is one program for each op; recorded and fused, a few.

# %%
captum = IntegratedGradients(on_device)
for mode in ("strict", "fused"):
    print(f"{mode:8} Captum: {counted(partial(captum.attribute, x_device, target=1, n_steps=50), mode)}")
    ours = partial(explain, on_device, x_device, 1, method="integrated_gradients", mode=mode)
    print(f"{mode:8} ours:   {counted(ours, 'default')}")

# %% [markdown]
# ## 2. Copies to and from the host
#
# Shapley values by permutations, 8 of 12 features. Captum decides on the host what to leave out, one feature at a time;
# coalitions here are made once, go to the device in batches, and the host reads their values.

# %%
sampling = ShapleyValueSampling(on_device)
print("Captum:", counted(partial(sampling.attribute, x_device, target=1, n_samples=8), "strict"))
batched = partial(explain, on_device, x_device, 1, method="shapley_sampling", permutations=8, mode="strict")
print("ours:  ", counted(batched, "default"))

# %% [markdown]
# ## 3. Precision of products
#
# A matrix unit rounds to bfloat16 once, three times or six times. Where it is emulated, a laptop shows what it costs.

# %%
exact = explain(net.double(), x.double(), 1, method="input_x_gradient").attribution
net.float()
for precision in ("default", "high", "highest"):
    with torch.tpu.precision(precision):
        asked = {"method": "input_x_gradient", "mode": "strict", "on_low_precision": "ignore"}
        found = explain(on_device, x_device, 1, **asked)
    error = (found.attribution.cpu() - exact).abs().max() / exact.abs().max()
    print(f"{precision:8} error {float(error):.1e}; the certificate says {found.certificate.precision_error or 0:.1e}")

# %% [markdown]
# ## 4. Integrals that have not converged
#
# A language model with random weights: the sum of attributions against the change that it should be. More fixed steps
# do not say whether they are enough; pieces that are cut where it matters do.


# %%
class Language(nn.Module):
    """Two layers of causal attention over embeddings (n, length, 16)."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True) for _ in range(2))
        self.head = nn.Linear(16, 64)

    def forward(self, embedded):
        mask = torch.ones(embedded.shape[1], embedded.shape[1], dtype=torch.bool).triu(1).to(embedded.device)
        for layer in self.layers:
            embedded = layer(embedded, src_mask=mask)
        return self.head(embedded[:, -1])


torch.manual_seed(3)
language, embedded = Language().eval().requires_grad_(False), 20 * torch.randn(1, 9, 16)
change = model_function(language, embedded, 7)
change = change.value((embedded,)) - change.value((0 * embedded,))
for steps in (32, 128, 512):
    total = IntegratedGradients(language).attribute(embedded, target=7, n_steps=steps).sum()
    print(f"{steps:4} steps: the sum is off by {float((total - change).abs() / change.abs()):.2%}")
found = explain(language, embedded, 7, method="integrated_gradients")
gap = found.certificate.completeness_gap
print(f"{found.certificate.gradients:4} gradients where it matters: {gap:.4%}, passed: {found.certificate.passed}")

# %% [markdown]
# ## 5. Memory set by the logits
#
# The logits of all positions are the largest tensor of a language model's call. For a target `(position, token)` only
# those of that position are needed, which a model with `logits_to_keep`, as those of transformers, is asked for.


# %%
class Wide(nn.Module):
    """Embeddings, a sum over what came before, and logits for a vocabulary of 4,096."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(4096, 16), nn.Linear(16, 4096)

    def forward(self, ids):
        return self.head(self.embedding(ids).cumsum(1).tanh())


class Sparing(Wide):
    """The same, and logits of some positions on demand."""

    def forward(self, ids, logits_to_keep=0):
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        return self.head(self.embedding(ids).cumsum(1).tanh()[:, kept])


ids = torch.arange(8 * 48).reshape(8, 48).to("tpu")
for kind in (Wide, Sparing):
    model = kind().eval().requires_grad_(False).to("tpu")
    used = torch.tpu.memory_allocated()
    found = explain(model, ids, (47, 5), method="input_x_gradient", layer="embedding", mode="strict")
    print(f"{kind.__name__:8} {(found.certificate.peak_memory - used) / 2**20:.2f} MiB more than the model")

# %% [markdown]
# ## 6. Chips
#
# More chips are for what does not fit one. With a limit on memory, thirty-two copies at once are refused by one device;
# four take eight each, and give the bits of one device that takes eight.

# %%
wide = nn.Sequential(nn.Linear(12, 2048), nn.Tanh(), nn.Linear(2048, 3)).eval().to("tpu")
asked = {"target": 1, "method": "kernel_shap", "samples": 64, "mode": "strict"}
if torch.tpu.device_count() >= 4:
    torch.tpu.reset_peak_memory_stats()
    one = explain(wide, x_device, chunk=8, **asked)
    limit = torch.tpu.max_memory_allocated() * 3 // 2
    for index in range(4):
        torch.tpu.set_memory_limit(limit, index)
    try:
        explain(wide, x_device, chunk=32, **asked)
    except torch.OutOfMemoryError as error:
        print(str(error).splitlines()[0])
    four = explain(wide, x_device, chunk=8, devices=4, **asked)
    print("four devices, the same bits:", torch.equal(one.attribution, four.attribution))
    for index in range(4):
        torch.tpu.set_memory_limit(None, index)

# %% [markdown]
# ## 7. Modes
#
# The same attribution op by op, fused, and compiled whole.

# %%
for mode in ("strict", "fused", "compiled"):
    call = partial(explain, on_device, x_device, 1, method="input_x_gradient", mode=mode)
    found, seconds = [call() for _ in range(3)][-1], []
    for _ in range(9):
        started = time.perf_counter()
        call().attribution.cpu()
        seconds.append(time.perf_counter() - started)
    error = float((found.attribution.cpu() - exact).abs().max() / exact.abs().max())
    launched = found.certificate.programs
    print(f"{mode:8} {launched:3} programs, {1e3 * statistics.median(seconds):.2f} ms, error {error:.0e}")
