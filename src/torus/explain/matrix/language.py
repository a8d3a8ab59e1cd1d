"""Methods for language models: embedding layers, prompts and generated text."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from captum import attr

from torus.explain.matrix.cases import Case, Table, joined
from torus.explain.matrix.models import VOCABULARY, Setup, tokenizer, words

CASES = Table()
_PROMPT = words(9, 14, 15, 21)
_ANSWER = words(5, 35)
_TARGET = 11
_STEPS = 6


def _ids(s: Setup) -> torch.Tensor:
    return torch.randint(4, VOCABULARY, (2, 5), generator=torch.Generator().manual_seed(2)).to(s.device)


def _embedding(s: Setup) -> torch.nn.Module:
    return s.net.get_submodule("lm.model.embed_tokens")


def _decoder(s: Setup) -> Any:
    """The language model itself, compiled if the model is."""
    lm = s.net.get_submodule("lm")
    return lm if s.model is s.net else torch.compile(lm, backend="tpu")


def _add(name: str, run: Any, *covers: str, needs: str | None = None) -> None:
    CASES.append(Case(name, "lm", run, (name.split(":")[0], *covers), needs=needs))


def _integrated(s: Setup, **options: Any) -> torch.Tensor:
    ids = _ids(s)
    method = attr.LayerIntegratedGradients(s.model, _embedding(s))
    return joined(
        *method.attribute(
            ids, torch.zeros_like(ids), target=_TARGET, n_steps=_STEPS, return_convergence_delta=True, **options
        )
    )


_add("LayerIntegratedGradients: embedding", _integrated)
_add("LayerIntegratedGradients: embedding, in batches", partial(_integrated, internal_batch_size=4))


@CASES.case("LayerIntegratedGradients: two layers", "lm")
def _(s: Setup) -> Any:
    layers = [s.net.get_submodule(f"lm.model.layers.{i}.mlp") for i in range(2)]
    ids = _ids(s)
    method = attr.LayerIntegratedGradients(s.model, layers)
    return method.attribute(ids, torch.zeros_like(ids), target=_TARGET, n_steps=_STEPS)


@CASES.case("LayerGradientXActivation: embedding", "lm")
def _(s: Setup) -> Any:
    return attr.LayerGradientXActivation(s.model, _embedding(s)).attribute(_ids(s), target=_TARGET)


@CASES.case("LayerActivation: embedding", "lm")
def _(s: Setup) -> Any:
    return attr.LayerActivation(s.model, _embedding(s)).attribute(_ids(s))


@CASES.case(
    "configure_interpretable_embedding_layer",
    "lm",
    covers=("remove_interpretable_embedding_layer", "InterpretableEmbeddingBase", "TokenReferenceBase"),
)
def _(s: Setup) -> Any:
    ids = _ids(s)
    reference = attr.TokenReferenceBase(0).generate_reference(ids.shape[1], s.device)[None]
    embedding = attr.configure_interpretable_embedding_layer(s.net, "lm.model.embed_tokens")
    try:
        given, baseline = (embedding.indices_to_embeddings(x) for x in (ids, reference.expand_as(ids)))
        return attr.IntegratedGradients(s.model).attribute(given, baseline, target=_TARGET, n_steps=_STEPS)
    finally:
        attr.remove_interpretable_embedding_layer(s.net, embedding)


def _found(result: Any) -> Any:
    parts = [result.seq_attr, result.token_attr]
    return [part for part in parts if part is not None]


def _perturbed(s: Setup, method: Any, **options: Any) -> Any:
    words = tokenizer()
    wrapped = attr.LLMAttribution(method(_decoder(s)), words)
    return _found(wrapped.attribute(attr.TextTokenInput(_PROMPT, words), target=_ANSWER, **options))


_tokens = ("LLMAttributionResult", "TextTokenInput")
_whole: dict[str, Any] = {"forward_in_tokens": False}
_add("LLMAttribution: ablation", partial(_perturbed, method=attr.FeatureAblation), *_tokens)
_add(
    "LLMAttribution: ablation without a cache",
    partial(_perturbed, method=attr.FeatureAblation, use_cached_outputs=False),
)
_add("LLMAttribution: ablation, whole answer", partial(_perturbed, method=attr.FeatureAblation, **_whole))
_add("LLMAttribution: Shapley values", partial(_perturbed, method=attr.ShapleyValues, **_whole))
_add("LLMAttribution: Shapley sampling", partial(_perturbed, method=attr.ShapleyValueSampling, n_samples=2, **_whole))
for _method in (attr.Lime, attr.KernelShap):
    _add(
        f"LLMAttribution: {_method.__name__}",
        partial(_perturbed, method=_method, n_samples=16, **_whole),
        needs="sklearn",
    )


def _template() -> Any:
    return attr.TextTemplateInput("{} w24 {} w25", values=[words(10), words(11)], baselines=[words(31), words(32)])


@CASES.case("LLMAttribution: template, generated", "lm", covers=("TextTemplateInput",))
def _(s: Setup) -> Any:
    wrapped = attr.LLMAttribution(attr.FeatureAblation(_decoder(s)), tokenizer())
    return _found(wrapped.attribute(_template(), gen_args={"max_new_tokens": 2, "do_sample": False}))


def _by_gradient(s: Setup, name: str, **options: Any) -> Any:
    text, lm = tokenizer(), _decoder(s)
    wrapped = attr.LLMGradientAttribution(getattr(attr, name)(lm, _embedding(s)), text)
    if "n_samples" in options:
        options["baselines"] = torch.zeros(1, 4, dtype=torch.long, device=s.device)
    return _found(wrapped.attribute(attr.TextTokenInput(_PROMPT, text), target=_ANSWER, **options))


_gradients: dict[str, dict[str, Any]] = {
    "LayerIntegratedGradients": {"n_steps": _STEPS},
    "LayerGradientXActivation": {},
    "LayerGradientShap": {"n_samples": 2},
}
for _name, _options in _gradients.items():
    _add(f"LLMGradientAttribution: {_name}", partial(_by_gradient, name=_name, **_options))


@CASES.case("RemoteLLMAttribution", "lm")
def _(s: Setup) -> Any:
    text, lm = tokenizer(), _decoder(s)

    class Local(attr.RemoteLLMProvider):
        """The model of the setup in the place of a server."""

        api_url = ""

        def generate(self, prompt: str, **_: Any) -> str:
            return _ANSWER

        def get_logprobs(self, input_prompt: str, target_str: str, tokenizer: Any = None) -> list[float]:
            start, end = (text.encode(part, return_tensors="pt").to(s.device) for part in (input_prompt, target_str))
            logits = lm(torch.cat([start, end], 1)).logits[0, start.shape[1] - 1 : -1]
            return logits.log_softmax(-1).gather(1, end[0][:, None])[:, 0].tolist()

    placeholder = attr.FeatureAblation(attr.RemoteLLMAttribution.placeholder_model)
    wrapped = attr.RemoteLLMAttribution(placeholder, text, Local())
    return _found(wrapped.attribute(_template(), target=_ANSWER))
