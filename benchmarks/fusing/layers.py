"""Captum's integrated gradients over the embedding layer of language models: MiniLM, and a decoder like Qwen3.

64 steps on the path go through the model in batches of 16, so that memory stays small. The decoder has random weights.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import minilm
from benchmarks.fusing.gradients import missing as captum_missing
from benchmarks.fusing.turns import Case, measure
from benchmarks.places import Place
from benchmarks.report import Figure, Result
from benchmarks.worker import Worker

GROUP = "fuse-layers"
STEPS, BATCH, TOKENS = 64, 16, 12
LEAST_SPEEDUP = 2.0
MINILM, DECODER = "MiniLM, 64 steps", "decoder of 0.1 B parameters, 64 steps"
MOST_ROUNDS = 3
SIZES: dict[str, Any] = {
    "vocab_size": 32_000,
    "hidden_size": 640,
    "intermediate_size": 2048,
    "num_hidden_layers": 14,
    "num_attention_heads": 10,
    "num_key_value_heads": 5,
    "head_dim": 64,
}
QUICK_SIZES = SIZES | {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}


def work(place: Place, case: str, quick: bool) -> Callable[[], Any]:
    """One call: a score for each token and width of the embedding."""
    from captum.attr import LayerIntegratedGradients

    function, layer, ids, extra = (_minilm if case == MINILM else _decoder)(quick, place.device)
    method = LayerIntegratedGradients(function, layer)
    steps = 2 * BATCH if quick else STEPS
    return lambda: method.attribute(
        ids, ids * 0, additional_forward_args=extra, n_steps=steps, internal_batch_size=BATCH
    )


def _minilm(_: bool, device: str) -> tuple[Any, ...]:
    import torch

    model, tokens = minilm.load()
    with torch.no_grad():
        partner = minilm.embed(model, tokens)[1:2].to(device)
    model, tokens = model.to(device), {name: value[:1].to(device) for name, value in tokens.items()}

    def similarity(ids: Any, mask: Any, partner: Any) -> Any:
        return (minilm.embed(model, {"input_ids": ids, "attention_mask": mask}) * partner).sum(-1)

    return similarity, model.get_input_embeddings(), tokens["input_ids"], (tokens["attention_mask"], partner)


def _decoder(quick: bool, device: str) -> tuple[Any, ...]:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(**(QUICK_SIZES if quick else SIZES), tie_word_embeddings=True, use_cache=False)
    model = Qwen3ForCausalLM(config).eval().requires_grad_(False).to(device)
    ids = torch.randint(1, config.vocab_size, (1, TOKENS)).to(device)

    def logit(ids: Any) -> Any:
        return model(input_ids=ids, logits_to_keep=1).logits[:, -1, 7]

    return logit, model.get_input_embeddings(), ids, None


def run(workers: Sequence[Worker], rounds: int, quick: bool) -> Result:
    """Measure what is installed; quick: a small decoder only."""
    why = {MINILM: captum_missing() or minilm.missing(), DECODER: captum_missing() or _transformers_missing()}
    names = [name for name in ((DECODER,) if quick else (MINILM, DECODER)) if not why[name]]
    cases = [Case(name, 1, least_speedup=LEAST_SPEEDUP) for name in names]
    result = measure(GROUP, __name__, cases, workers, min(rounds, MOST_ROUNDS), quick) if cases else Result([])
    result.figures += [
        Figure(GROUP, f"ratio strict / fused, {name}", None, "x", LEAST_SPEEDUP, at_least=True, note=reason)
        for name, reason in why.items()
        if reason
    ]
    return result


def _transformers_missing() -> str:
    return "" if importlib.util.find_spec("transformers") else "transformers is not installed"
