from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from tests.models.compare import assert_all_near, assert_near, check_training

pytestmark = pytest.mark.slow

SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
    "initializer_range": 0.2,
}
KINDS = ["qwen3", "llama"]
ATTENTION = ["sdpa", "eager"]


def decoder(kind: str, attention: str, **changes: Any) -> Any:
    sizes = {**SIZES, **changes}
    if kind == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**sizes, attn_implementation=attention))
    return LlamaForCausalLM(LlamaConfig(**sizes, attn_implementation=attention))


def prompt(length: int = 10) -> tuple[Tensor, Tensor]:
    """Ids and a mask that pads the second row on the left, as generation wants it."""
    ids, mask = torch.randint(2, 96, (2, length)), torch.ones(2, length, dtype=torch.long)
    ids[1, :3], mask[1, :3] = 0, 0
    return ids, mask


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("kind", KINDS)
def test_training(kind: str, attention: str) -> None:
    def loss(model: nn.Module, ids: Tensor) -> Tensor:
        return model(input_ids=ids, labels=ids).loss

    ids, _ = prompt()
    adamw = lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, eps=1e-4)  # noqa: E731
    check_training(decoder(kind, attention), (ids,), loss, adamw)


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("kind", KINDS)
def test_padded_logits(kind: str, attention: str) -> None:
    """Padded on the right: rows of a mask that attend to nothing have no right answer."""
    model, (ids, mask) = decoder(kind, attention).eval(), (t.flip(1) for t in prompt())
    with torch.no_grad():
        expected = copy.deepcopy(model).double()(input_ids=ids, attention_mask=mask).logits
        actual = model.to("tpu")(input_ids=ids.to("tpu"), attention_mask=mask.to("tpu")).logits.cpu()
    assert_near(actual[mask.bool()], expected[mask.bool()])


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_generation(kind: str, attention: str) -> None:
    """With the key-value cache, token for token."""
    model, (ids, mask) = decoder(kind, attention).eval(), prompt()
    options = {"max_new_tokens": 8, "do_sample": False}
    expected = model.generate(ids, attention_mask=mask, **options)
    actual = model.to("tpu").generate(ids.to("tpu"), attention_mask=mask.to("tpu"), **options)
    assert actual.device.type == "tpu"
    assert actual.tolist() == expected.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_cache_equals_whole_sequence(kind: str) -> None:
    model = decoder(kind, "sdpa").eval().to("tpu")
    ids = prompt()[0].to("tpu")
    with torch.no_grad():
        whole = model(input_ids=ids).logits
        cache, steps = None, []
        for i in range(ids.shape[1]):
            out = model(input_ids=ids[:, i : i + 1], cache=cache, use_cache=True)
            cache = out.cache
            steps.append(out.logits)
    assert_near(torch.cat(steps, 1), whole.cpu())


def test_generation_options() -> None:
    """Beams, a repetition penalty and banned tokens work on the device as they do on the CPU."""
    model, (ids, mask) = decoder("llama", "sdpa").eval(), prompt()
    device = copy.deepcopy(model).to("tpu")
    for options in ({"num_beams": 3}, {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2}, {"min_new_tokens": 3}):
        options = {**options, "max_new_tokens": 4, "do_sample": False}
        expected = model.generate(ids, attention_mask=mask, **options)
        actual = device.generate(ids.to("tpu"), attention_mask=mask.to("tpu"), **options)
        assert actual.tolist() == expected.tolist(), options


def test_sampling_is_seeded() -> None:
    model = decoder("qwen3", "sdpa").eval().to("tpu")
    ids, mask = (t.to("tpu") for t in prompt())

    def run(seed: int) -> list[list[int]]:
        torch.manual_seed(seed)
        options = {"max_new_tokens": 6, "do_sample": True, "top_k": 20, "top_p": 0.9, "temperature": 0.8}
        return model.generate(ids, attention_mask=mask, **options).tolist()

    first = run(0)
    assert first == run(0)
    assert first != run(1)


def test_static_cache() -> None:
    model, (ids, mask) = decoder("llama", "sdpa").eval(), prompt()
    options = {"max_new_tokens": 6, "do_sample": False}
    expected = model.generate(ids, attention_mask=mask, **options)
    actual = model.to("tpu").generate(
        ids.to("tpu"), attention_mask=mask.to("tpu"), cache_implementation="static", disable_compile=True, **options
    )
    assert actual.tolist() == expected.tolist()


def test_gradient_checkpointing() -> None:
    model = decoder("qwen3", "sdpa").train()
    ids, _ = prompt()

    def gradients(own: Any, dtype: torch.dtype, device: str) -> dict[str, Tensor]:
        own = copy.deepcopy(own).to(device, dtype)
        own(input_ids=ids.to(device), labels=ids.to(device)).loss.backward()
        return {name: p.grad.cpu() for name, p in own.named_parameters()}

    expected = gradients(model, torch.float64, "cpu")
    model.activation_checkpointing_enable({"use_reentrant": False})
    assert_all_near(gradients(model, torch.float32, "tpu"), expected)


def test_bfloat16_training_step() -> None:
    """As far from float64 as bfloat16 on the CPU is, within a factor of two."""
    model, (ids, _) = decoder("llama", "sdpa"), prompt()

    def logits(device: str, dtype: torch.dtype) -> Tensor:
        out = copy.deepcopy(model).to(device, dtype)(input_ids=ids.to(device), labels=ids.to(device))
        out.loss.backward()
        return out.logits.detach().cpu().double()

    exact = logits("cpu", torch.float64)
    errors = {d: (logits(d, torch.bfloat16) - exact).square().mean().sqrt() for d in ("cpu", "tpu")}
    assert errors["tpu"] <= 2 * errors["cpu"]


def test_gpt2() -> None:
    """Learned positions, fused projections, tanh GELU, tied embeddings."""

    def loss(model: nn.Module, ids: Tensor) -> Tensor:
        return model(input_ids=ids, labels=ids).loss

    drops = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = GPT2Config(vocab_size=96, n_positions=32, n_embd=32, n_layer=2, n_head=4, **drops)
    check_training(GPT2LMHeadModel(config), (prompt()[0],), loss)


@pytest.mark.parametrize("form", ["causal", "boolean", "additive", "grouped", "scaled"])
def test_attention_gradients(form: str) -> None:
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 7, 8), torch.randn(2, 4, 7, 8)
    options: dict[str, Any] = {}
    if form == "causal":
        options["is_causal"] = True
    elif form == "boolean":
        options["attn_mask"] = torch.rand(2, 1, 5, 7) > 0.3
    elif form == "additive":
        options["attn_mask"] = torch.randn(2, 4, 5, 7)
    elif form == "grouped":
        k, v, options["enable_gqa"] = k[:, :2], v[:, :2], True
    else:
        options["scale"] = 0.2

    def run(device: str, dtype: torch.dtype) -> dict[str, Tensor]:
        leaves = [t.to(device, dtype).requires_grad_() for t in (q, k, v)]
        own = {
            n: (o.to(device, dtype) if o.is_floating_point() else o.to(device)) if isinstance(o, Tensor) else o
            for n, o in options.items()
        }
        out = F.scaled_dot_product_attention(*leaves, **own)
        (out * torch.arange(8, device=device)).sum().backward()
        return {"out": out.detach().cpu(), **{n: t.grad.cpu() for n, t in zip("qkv", leaves)}}

    assert_all_near(run("tpu", torch.float32), run("cpu", torch.float64))
