"""Why are two sentences similar? MiniLM on the device "tpu", explained with Captum, checked against the CPU.

    python examples/explain_sentences.py
    python examples/explain_sentences.py --sentences "A cat sat down." "The kitten took a seat."

Embeds pairs of sentences, attributes their cosine similarity to their tokens by integrated gradients over the embedding
layer, compares embeddings and attributions with PyTorch on the CPU in float32, and writes an HTML report. Exits with 1
when a check fails.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torus.cli.progress import Stage

PAIRS = (
    ("A man is playing a guitar on stage.", "Someone performs music for an audience."),
    ("The doctor told him to rest for a week.", "The physician recommended seven days without work."),
    ("The bank raised its interest rates.", "She sat on the bank of the river."),
)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line; see --help."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--sentences", nargs=2, action="append", metavar=("A", "B"), help="a pair to explain; repeat for more pairs")
    add("--model", type=Path, metavar="DIR", help="a Hugging Face encoder on disk (default: the packaged MiniLM)")
    add("--device", choices=("tpu", "cpu"), default="tpu", help="where to run (default: tpu)")
    add("--steps", type=_positive, default=48, metavar="N", help="points on the integrated path (default: 48)")
    add(
        "--repeats", type=_positive, default=3, metavar="N", help="warm runs that the median is taken over (default: 3)"
    )
    add("--output", type=Path, default=Path("reports/explain_sentences.html"), metavar="FILE", help="the HTML report")
    add("--json", action="store_true", help="print everything measured as JSON instead of the table")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Do the work, showing progress, and return all that was found; `sentences.results` describes it."""
    with Stage("importing torch, transformers and captum"):
        from sentences import results
        from sentences.attribution import attribute, model_calls
        from sentences.encoder import Encoder, packaged_model
        from sentences.measure import measure

    sentences = [sentence for pair in options.sentences or PAIRS for sentence in pair]
    directory = options.model or packaged_model()
    calls = model_calls(len(sentences), options.steps)
    with Stage(f"loading {results.short_name(directory)} onto the {options.device}"):
        encoder = Encoder(directory, options.device)
        batch = encoder.tokenize(sentences)
    with Stage(f"embedding {len(sentences)} sentences", 1 + options.repeats) as stage:
        embedding = measure(lambda: encoder.embed_batch(batch), options.device, options.repeats, stage.advance)
    with Stage(f"explaining them in {options.steps} steps", calls * (1 + options.repeats)) as stage:
        explaining = measure(
            lambda: attribute(encoder, batch, options.steps, stage.advance), options.device, options.repeats
        )
    with Stage("doing both on the CPU for reference", 1 + calls) as stage:
        reference = Encoder(directory, "cpu")
        expected = reference.embed_batch(batch), attribute(reference, batch, options.steps, stage.advance)

    return {
        "sentences": len(sentences),
        "steps": options.steps,
        "model": {
            "name": results.short_name(directory),
            "directory": str(directory.resolve()),
            "parameters": encoder.parameters,
        },
        **results.environment(options.device),
        "pairs": results.pairs(sentences, batch, explaining.result),
        "cost": [
            results.cost(f"embed {len(sentences)} sentences", embedding),
            results.cost(f"explain {len(sentences)} sentences", explaining),
        ],
        "checks": results.checks(embedding.result, explaining.result, *expected),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example. Returns 0, 1 when a check failed, 2 when there was nothing to run on."""
    options = parse(arguments)
    try:
        found = run(options)
    except (FileNotFoundError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    from sentences.report import render
    from sentences.table import table

    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(render(found), encoding="utf-8")
    path = str(options.output.resolve())
    print(json.dumps({**found, "report": path}, indent=2) if options.json else f"{table(found)}\n\nreport: {path}")
    failed = [check for check in found["checks"] if not check["passed"]]
    for check in failed:
        print(
            f"FAILED: {check['name']} is {check['value']:.2e}, limit {check['limit']:.0e}. {check['advice']}",
            file=sys.stderr,
        )
    return 1 if failed else 0


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


if __name__ == "__main__":
    sys.exit(main())
