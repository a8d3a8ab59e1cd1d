"""A sentence encoder as a bundle: exported once from PyTorch, then run without it.

    python examples/export_sentences.py
    python examples/export_sentences.py --sentences "A cat sat down." "The kitten took a seat."

Writes MiniLM, with its pooling, to a folder: one program for any number of sentences of any length. Then another Python
process, in which PyTorch cannot be imported, embeds two sentences with it. Exits with 1 when an embedding differs from
PyTorch's on the CPU by more than rounding.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch.export import Dim

import torus
from sentences.encoder import Encoder, packaged_model

TOLERANCE = 1e-5
SENTENCES = ("The doctor told him to rest for a week.", "The physician recommended seven days without work.")
RUNNER = """
import sys
sys.modules["torch"] = None  # `import torch` fails from here on
import numpy as np
from torus.bundle import Bundle

folder, inputs, outputs = sys.argv[1:]
bundle = Bundle.load(folder)
print(bundle.describe())
np.save(outputs, bundle.run(dict(np.load(inputs))))
"""


class Embed(torch.nn.Module):
    """The encoder from tokens to unit vectors, as one module; `ids` and `mask` are [sentences, tokens]."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.model = encoder.model
        self.embed = encoder.embed

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.embed(ids, mask)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 0 when the bundle gives PyTorch's embeddings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", nargs=2, default=SENTENCES, metavar=("A", "B"), help="what to compare")
    parser.add_argument("--output", type=Path, default=Path("reports/minilm"), metavar="DIR", help="the bundle")
    options = parser.parse_args(arguments)
    encoder = Encoder(packaged_model(), "cpu")
    batch = encoder.tokenize(options.sentences)
    sizes = {0: Dim("sentences", max=64), 1: Dim("tokens", max=128)}
    torus.export(
        Embed(encoder).eval(),
        (batch.ids, batch.mask),
        options.output,
        dynamic_shapes=(sizes, sizes),
        name="MiniLM",
        overwrite=True,
    )
    found = run_without_torch(options.output, ids=batch.ids.numpy(), mask=batch.mask.numpy())
    error = float(np.abs(found - encoder.embed_batch(batch).numpy()).max())
    print(f"similarity {found[0] @ found[1]:.4f}, largest difference to PyTorch on the CPU {error:.1e}")
    return int(error > TOLERANCE)


def run_without_torch(folder: Path, **inputs: np.ndarray) -> np.ndarray:
    """The bundle's result for `inputs`, from a process of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        given, result = Path(scratch) / "inputs.npz", Path(scratch) / "result.npy"
        np.savez(given, **inputs)
        subprocess.run([sys.executable, "-c", RUNNER, folder, given, result], check=True)
        return np.load(result)


if __name__ == "__main__":
    sys.exit(main())
