"""Training steps written for jax: the mathematics of `benchmarks.steps`, as one jitted function.

Parameters have the names and the values of the PyTorch model. The step gives its parameters and the optimizer's state
up, so that they are updated in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.steps import LEARNING_RATE

Parameters = dict[str, Any]
Forward = Callable[[Parameters, Any], Any]

BETAS, EPSILON, DECAY = (0.9, 0.999), 1e-8, 1e-2
"""PyTorch's defaults for AdamW."""


def linear(p: Parameters, name: str, x: Any) -> Any:
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def layer_norm(p: Parameters, name: str, x: Any) -> Any:
    from jax import lax

    centred = x - x.mean(-1, keepdims=True)
    scaled = centred * lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    return scaled * p[f"{name}.weight"] + p[f"{name}.bias"]


def mlp(p: Parameters, x: Any) -> Any:
    """Logits of `steps.mlp`."""
    import jax

    for layer in ("0", "2"):
        x = jax.nn.relu(linear(p, layer, x))
    return linear(p, "4", x)


def gpt(heads: int) -> Forward:
    """Logits of `steps.gpt`, one row a token."""
    import jax
    from jax import numpy as jnp

    def attention(p: Parameters, block: str, x: Any) -> Any:
        rows, tokens, width = x.shape
        split = linear(p, f"{block}.qkv", x).reshape(rows, tokens, 3, heads, width // heads)
        q, k, v = split.transpose(2, 0, 3, 1, 4)
        scores = q @ k.transpose(0, 1, 3, 2) / (width // heads) ** 0.5
        weights = jax.nn.softmax(jnp.where(jnp.tri(tokens, dtype=bool), scores, -jnp.inf), -1)
        return linear(p, f"{block}.out", (weights @ v).transpose(0, 2, 1, 3).reshape(rows, tokens, width))

    def perceptron(p: Parameters, block: str, x: Any) -> Any:
        return linear(p, f"{block}.mlp.2", jax.nn.gelu(linear(p, f"{block}.mlp.0", x), approximate=False))

    def forward(p: Parameters, ids: Any) -> Any:
        layers = sum(name.endswith(".qkv.weight") for name in p)
        x = p["0.weight"][ids]
        for block in map(str, range(1, layers + 1)):
            x = x + attention(p, block, layer_norm(p, f"{block}.norms.0", x))
            x = x + perceptron(p, block, layer_norm(p, f"{block}.norms.1", x))
        x = linear(p, str(layers + 2), layer_norm(p, str(layers + 1), x))
        return x.reshape(-1, x.shape[-1])

    return forward


def residual(p: Parameters, x: Any) -> Any:
    """Logits of `residual.residual`, with the statistics of the batch."""
    import jax
    from jax import lax

    def convolve(name: str, x: Any, stride: int) -> Any:
        weight = p[f"{name}.weight"]
        pad = weight.shape[-1] // 2
        kinds = ("NCHW", "OIHW", "NCHW")
        return lax.conv_general_dilated(x, weight, (stride, stride), [(pad, pad)] * 2, dimension_numbers=kinds)

    def norm(name: str, x: Any) -> Any:
        centred = x - x.mean((0, 2, 3), keepdims=True)
        scaled = centred * lax.rsqrt((centred * centred).mean((0, 2, 3), keepdims=True) + 1e-5)
        return scaled * p[f"{name}.weight"][:, None, None] + p[f"{name}.bias"][:, None, None]

    x = jax.nn.relu(norm("1", convolve("0", x, 1)))
    for block in range(3, 11):
        stride = 2 if f"{block}.short.0.weight" in p else 1
        y = jax.nn.relu(norm(f"{block}.norm1", convolve(f"{block}.conv1", x, stride)))
        short = norm(f"{block}.short.1", convolve(f"{block}.short.0", x, stride)) if stride == 2 else x
        x = jax.nn.relu(norm(f"{block}.norm2", convolve(f"{block}.conv2", y, 1)) + short)
    return linear(p, "13", x.mean((2, 3)))


def training_step(forward: Forward, model: Any, x: Any, y: Any, optimizer: str) -> Callable[[], Any]:
    """A function that does one step on the batch (x, y) from the parameters of `model`, and returns the loss."""
    import jax
    from jax import numpy as jnp

    def loss_of(p: Parameters, x: Any, y: Any) -> Any:
        log = jax.nn.log_softmax(forward(p, x), -1)
        return -jnp.take_along_axis(log, y[:, None], -1).mean()

    def step(p: Parameters, state: Any, x: Any, y: Any) -> tuple[Parameters, Any, Any]:
        loss, gradients = jax.value_and_grad(loss_of)(p, x, y)
        p, state = UPDATES[optimizer](p, gradients, state)
        return p, state, loss

    p = {name: jnp.array(value.detach().numpy()) for name, value in model.named_parameters()}
    state = None
    if optimizer == "AdamW":
        state = (jnp.zeros(()), *({name: jnp.zeros_like(value) for name, value in p.items()} for _ in range(2)))
    batch = jnp.array(x.numpy()), jnp.array(y.numpy())
    jitted = jax.jit(step, donate_argnums=(0, 1))

    def work() -> Any:
        nonlocal p, state
        p, state, loss = jitted(p, state, *batch)
        return loss

    return work


def _sgd(p: Parameters, gradients: Parameters, state: None) -> tuple[Parameters, None]:
    return {name: p[name] - LEARNING_RATE * gradients[name] for name in p}, state


def _adamw(p: Parameters, gradients: Parameters, state: Any) -> tuple[Parameters, Any]:
    from jax import numpy as jnp

    count, first, second = state[0] + 1, {}, {}
    changed = {}
    for name, g in gradients.items():
        first[name] = BETAS[0] * state[1][name] + (1 - BETAS[0]) * g
        second[name] = BETAS[1] * state[2][name] + (1 - BETAS[1]) * g * g
        root = jnp.sqrt(second[name]) / jnp.sqrt(1 - BETAS[1] ** count) + EPSILON
        change = first[name] / (1 - BETAS[0] ** count) / root
        changed[name] = p[name] * (1 - LEARNING_RATE * DECAY) - LEARNING_RATE * change
    return changed, (count, first, second)


UPDATES: dict[str, Callable[..., tuple[Parameters, Any]]] = {"SGD": _sgd, "AdamW": _adamw}
