"""``torus explain``: which words, pixels or columns made a model say what it says."""

from __future__ import annotations

import argparse
from pathlib import Path

from torus.cli import CommandError

MODES = ("default", "strict", "fused", "compiled")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is explained, how, and what is written."""
    where = "a local Hugging Face directory, package.module:factory or file.py:factory"
    parser.add_argument("model", metavar="MODEL", nargs="?", help=where)
    parser.add_argument("--methods", action="store_true", help="list the methods and end")
    _add_input(parser.add_argument_group("the input, one of these"))
    _add_question(parser.add_argument_group("the question"))
    _add_run(parser.add_argument_group("how it runs"))
    output = parser.add_argument_group("what is written")
    output.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="a report: .html, .svg or .png; again for more",
    )
    output.add_argument("--title", help="of the report")
    output.add_argument("--theme", choices=("auto", "light", "dark"), default="auto", help="of the HTML report")
    output.add_argument("--json", action="store_true", help="print everything as JSON")
    output.add_argument("--plan", action="store_true", help="say what it would cost, and end")


def _add_input(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--text", metavar="TEXT", help="a prompt or a text to classify; - reads it from the input")
    group.add_argument(
        "--chat", metavar="FILE", type=Path, help='messages as JSON: [{"role": "user", "content": "..."}]'
    )
    group.add_argument("--image", metavar="FILE", type=Path, help="PNG or JPEG")
    group.add_argument("--table", metavar="FILE", type=Path, help="CSV with a header")
    group.add_argument("--row", metavar="N", type=int, default=1, help="the row of the table (default: 1, the first)")
    group.add_argument("--columns", metavar="NAMES", help="the columns the model takes, by commas (default: all)")
    group.add_argument("--size", metavar="PIXELS", type=int, help="scale the image to a square of this side")


def _add_question(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--target", metavar="T", help="the text that is to follow, or a class (default: the most likely)"
    )
    group.add_argument("--against", metavar="T", help="a token or class to compare with: why not that one?")
    group.add_argument("--generate", metavar="N", type=int, default=0, help="explain the N tokens that the model says")
    group.add_argument("--each-token", action="store_true", help="a row of scores for each token of the continuation")
    group.add_argument("--similar-to", metavar="TEXT", help="explain the similarity of two texts by a sentence encoder")
    group.add_argument("--by", default="word", metavar="UNIT", help="token, word, sentence, line or paragraph")
    group.add_argument("--score", choices=("log_prob", "logit", "prob"), help="which score of a token or class")
    group.add_argument("--replacement", metavar="TOKEN", help="the token in the place of what is left out")
    baseline = "zero, mean (of the table's columns) or a number (default: mean for tables, else zero)"
    group.add_argument("--baseline", metavar="B", help=baseline)
    group.add_argument("--layer", metavar="NAME", help="explain what this module gives, not the input (images, tables)")


def _add_run(group: argparse._ArgumentGroup) -> None:
    method = "default: feature_ablation for text, input_x_gradient for the rest"
    group.add_argument("--method", metavar="NAME", help=f"see --methods ({method})")
    group.add_argument("--option", metavar="NAME=VALUE", action="append", default=[], help="an option of the method")
    group.add_argument("--tol", metavar="X", type=float, default=1e-3, help="relative tolerance (default: 1e-3)")
    group.add_argument("--budget", metavar="BYTES", help="memory it may take, such as 2GiB")
    group.add_argument("--chunk", metavar="N", type=int, help="rows that run at once at most")
    group.add_argument("--mode", choices=MODES, default="default", help="how operators run")
    group.add_argument("--device", default="tpu", help="tpu (whatever torus finds; the default), cpu, ...")
    group.add_argument("--seed", type=int, default=0, help="decides every random draw")


def run(args: argparse.Namespace) -> int:
    """Explain, print and write; 1 where the certificate does not pass."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise CommandError(f"`torus explain` needs PyTorch: {error}") from error
    from torus import backend
    from torus.cli.explain import work

    backend.register()
    if args.methods:
        return work.list_methods()
    return work.run(args)
