"""Tiny models with random weights and tokenizers made here: nothing is downloaded."""

from __future__ import annotations

from typing import Any

import pytest
import torch

WORDS = "the cat sat on a mat dog ran . , ! Paris Rome is capital of France Italy user system assistant".split()

TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] | trim }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def byte_tokenizer() -> Any:
    """A byte-level tokenizer whose tokens are single bytes, and a space before a word; it has a chat template."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    model = tokenizers.models.BPE({letter: index for index, letter in enumerate(alphabet)}, [])
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<pad>", "<|user|>", "<|system|>", "<|assistant|>", "<|end|>"])
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>")
    wrapped.chat_template = TEMPLATE
    return wrapped


def word_tokenizer() -> Any:
    """A tokenizer of `tokenizers` with one token a word, [CLS] and [SEP] around a text."""
    tokenizers = pytest.importorskip("tokenizers")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: index for index, word in enumerate([*special, *WORDS])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, "[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.add_special_tokens(special)
    transformers = pytest.importorskip("transformers")
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **names)


def decoder(kind: str = "Qwen3", **changes: Any) -> Any:
    """A causal language model over the tokens of `byte_tokenizer`."""
    transformers = pytest.importorskip("transformers")
    sizes = {
        "vocab_size": 261,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.3,
    }
    if kind == "Qwen3":
        sizes["head_dim"] = 8
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**sizes | changes)
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval().requires_grad_(False)


def classifier(head: str = "BertForSequenceClassification") -> Any:
    """A BERT over the tokens of `word_tokenizer`, with three classes."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        initializer_range=0.3,
        id2label={0: "bad", 1: "fair", 2: "good"},
        label2id={"bad": 0, "fair": 1, "good": 2},
    )
    return getattr(transformers, head)(config).eval().requires_grad_(False)
