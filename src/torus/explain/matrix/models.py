"""The models that are explained, with random weights, and their examples."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

VOCABULARY = 64
WIDTH = 16


@dataclass
class Setup:
    """A model and its examples on a device in a dtype. `model` is what a method is given: `net`, or that compiled."""

    net: nn.Module
    model: Any
    x: torch.Tensor
    baseline: torch.Tensor
    distribution: torch.Tensor
    target: torch.Tensor
    mask: torch.Tensor
    layer_mask: torch.Tensor
    layer: nn.Module
    neuron: tuple[int, ...]
    window: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def device(self) -> torch.device:
        return self.x.device


class Perceptron(nn.Module):
    """Two hidden layers; each activation is a module of its own, as Captum's rules for modules ask."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.act1 = nn.Linear(6, 16), nn.ReLU()
        self.second, self.act2 = nn.Linear(16, 16), nn.ReLU()
        self.out = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.act2(self.second(self.act1(self.first(x)))))


class Convolutional(nn.Module):
    """Two convolutions with batch norm and pooling on images of 3x16x16."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        self.second, self.norm, self.act = nn.Conv2d(8, 12, 3), nn.BatchNorm2d(12), nn.ReLU()
        self.pool, self.drop, self.out = nn.MaxPool2d(2), nn.Dropout(0.5), nn.Linear(12 * 3 * 3, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.act(self.norm(self.second(self.first(x)))))
        return self.out(self.drop(x.flatten(1)))


class LastLogits(nn.Module):
    """The logits after the last token, of input embeddings or token ids: a classifier over the vocabulary."""

    def __init__(self, lm: nn.Module) -> None:
        super().__init__()
        self.lm = lm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = {"inputs_embeds": x} if x.is_floating_point() else {"input_ids": x}
        return self.lm(**given, use_cache=False, logits_to_keep=1).logits[:, -1]


def language_model() -> nn.Module:
    """A decoder of two layers, with weights so large that its attributions are not all alike."""
    import transformers

    lm = transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=8,
            max_position_embeddings=64,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            tie_word_embeddings=False,
        )
    )
    with torch.no_grad():
        for parameter in lm.parameters():
            if parameter.ndim > 1:
                parameter.mul_(8)
    return lm


def words(*ids: int) -> str:
    """The text of these tokens. All have two digits: a special token is found inside longer words, too."""
    return " ".join(f"w{i:02}" for i in ids)


def tokenizer() -> Any:
    """A word of the text is a token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pad, begin, end, unknown = words(*range(4)).split()
    tokens = Tokenizer(models.WordLevel({words(i): i for i in range(VOCABULARY)}, unk_token=unknown))
    tokens.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokens, pad_token=pad, bos_token=begin, eos_token=end, unk_token=unknown
    )


def _perceptron() -> dict[str, Any]:
    net = Perceptron()
    return {
        "net": net,
        **_examples((6,), (0, 3, 1, 2)),
        "mask": torch.tensor([[0, 0, 1, 2, 3, 3]]),
        "layer_mask": torch.arange(16)[None] % 5,
        "layer": "act1",
        "neuron": (3,),
        "window": (2,),
        "strides": (1,),
    }


def _convolutional() -> dict[str, Any]:
    net = Convolutional()
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.3)  # type: ignore[union-attr]
                module.running_var.uniform_(0.5, 1.5)  # type: ignore[union-attr]
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_(0, 0.2)
    quarters = (torch.arange(16) // 8)[:, None] * 2 + torch.arange(16) // 8
    return {
        "net": net,
        **_examples((3, 16, 16), (1, 4)),
        "mask": quarters.expand(1, 3, 16, 16).clone(),
        "layer_mask": torch.arange(12 * 36).view(1, 12, 6, 6) % 5,
        "layer": "act",
        "neuron": (2, 1, 1),
        "window": (3, 4, 4),
        "strides": (3, 4, 4),
    }


def _language() -> dict[str, Any]:
    return {
        "net": LastLogits(language_model()),
        **_examples((5, WIDTH), (7, 20)),
        "mask": torch.arange(5).view(1, 5, 1).expand(1, 5, WIDTH).clone(),
        "layer_mask": torch.arange(5 * WIDTH).view(1, 5, WIDTH) % 5,
        "layer": "lm.model.layers.0.mlp",
        "neuron": (2, 5),
        "window": (2, WIDTH),
        "strides": (1, WIDTH),
    }


def _examples(shape: tuple[int, ...], target: tuple[int, ...]) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    x, baseline = (torch.randn(len(target), *shape, generator=draw) for _ in range(2))
    return {
        "x": x,
        "baseline": 0.2 * baseline,
        "distribution": torch.randn(3, *shape, generator=draw),
        "target": torch.tensor(target),
    }


MODELS: dict[str, Callable[[], dict[str, Any]]] = {"mlp": _perceptron, "cnn": _convolutional}
if importlib.util.find_spec("transformers"):
    MODELS["lm"] = _language


def setup(name: str, device: str, dtype: torch.dtype, compiled: bool = False) -> Setup:
    """A new model of `MODELS`: the same weights every time."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        parts = MODELS[name]()

    def put(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return value.to(device, dtype if value.is_floating_point() else value.dtype)

    parts = {key: put(value) for key, value in parts.items()}
    net = parts["net"].to(device, dtype).eval()
    model = torch.compile(net, backend="tpu") if compiled else net
    return Setup(**{**parts, "net": net, "model": model, "layer": net.get_submodule(parts["layer"])})
