"""``torus plan``: whether a step of a model fits a TPU that is not here, and how fast it could be."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from torus.cli import CommandError, options
from torus.cli.progress import Status

if TYPE_CHECKING:
    from torus.twin.case import Case
    from torus.twin.planning import Planner

EPILOG = """
SCRIPT_OR_FACTORY is one of

  minilm, resnet18, tiny-gpt, qwen3-0.6b, ...   a worked example; none takes memory, each has options (batch=8)
  package.module:function, script.py:function   gives (model, inputs), or these and loss and optimizer by name
  a folder                                      with the config.json of a Hugging Face model; no weights are read

Three answers are printed as soon as each is there: analytic, from the program's text, at once; composed, from the TPU
compiler's result for each distinct block, within --budget; exact, from that for the whole step, where the budget allows
or --exact asks. The compiler runs on this machine (pip install "torus[tpu]"); no TPU is needed. What it made is kept.

  torus plan minilm --topology v6e:1x1 --step train
  torus plan llama-3-8b-lora --topology tpu7x:4x8x8 --mesh fsdp=512 --batch 512 --step train --html plan.html

The exit status is 0 where the step fits, 1 where it does not, 2 for errors.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is planned, where it is to run, how sure the answer has to be."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument("model", metavar="SCRIPT_OR_FACTORY", help="see below")
    option = "of the model, such as tokens=2048; again for more"
    parser.add_argument("--option", metavar="NAME=VALUE", action="append", default=[], help=option)
    parser.add_argument("--batch", metavar="N", type=int, help="examples of all devices together")
    step = "inference, or forward, backward and update (default: forward)"
    parser.add_argument("--step", choices=("forward", "train"), default="forward", help=step)
    where = parser.add_argument_group("where it is to run")
    where.add_argument(
        "--topology", metavar="T", required=True, help="such as v6e:1x1, v6e:2x2, v5p:2x2x1, tpu7x:4x8x8"
    )
    where.add_argument(
        "--mesh", metavar="AXES", help="devices by axes: data=4 or data=2,model=2 (default: all are data)"
    )
    split = "data: the batch is; fsdp: parameters too; tensor: layers are (default: data)"
    where.add_argument("--sharding", choices=("data", "fsdp", "tensor"), default="data", help=f"what is split: {split}")
    precision = "of float32 products (default: that of torch.tpu.precision)"
    where.add_argument("--precision", choices=("default", "high", "highest"), help=precision)
    sure = parser.add_argument_group("how sure, and how long")
    budget = "for the TPU compiler; 0 asks for the analytic answer alone (default: 5)"
    sure.add_argument("--budget", metavar="MINUTES", type=float, default=5.0, help=budget)
    sure.add_argument("--exact", action="store_true", help="compile the whole step, however long it takes")
    more = parser.add_argument_group("what else is found")
    more.add_argument("--advice", action="store_true", help="what would help, with figures before and after")
    more.add_argument("--scaling", action="store_true", help="the step on 1 to 512 chips, weak and strong")
    more.add_argument("--numerics", action="store_true", help="run the model with the TPU's products and without")
    output = parser.add_argument_group("what is written")
    output.add_argument("--json", metavar="FILE", type=Path, help="everything, for programs; - for the output")
    output.add_argument("--html", metavar="FILE", type=Path, help="one page that needs nothing else")


def run(args: argparse.Namespace) -> int:
    """Plan, print and write; 1 where the step does not fit."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise CommandError(f"`torus plan` needs PyTorch: {error}") from error
    from torus import backend

    backend.register()
    from torus.twin.planning import Planner

    try:
        case = _case(args)
        sized = case if args.batch is None else case.with_batch(args.batch)
        planner = Planner(sized, args.topology, args.mesh, Status())
        _answers(args, planner, case)
    except (ValueError, TypeError, RuntimeError) as error:
        raise CommandError(str(error)) from error
    _write(args, planner)
    return 0 if planner.plan.fits else 1


def _answers(args: argparse.Namespace, planner: Planner, case: Case) -> None:
    """Each is printed when it is there."""
    from torus.twin.report import text

    quiet = args.json == Path("-")

    def say(words: str) -> None:
        planner.progress.clear() if isinstance(planner.progress, Status) else None
        if not quiet:
            print(words, flush=True)

    say(text.head(planner.plan))
    for answer in planner.answers(args.budget, args.exact):
        say(text.answer(answer))
    if args.numerics:
        planner.check_numerics(case)
    if args.advice:
        planner.advise()
    if args.scaling:
        planner.scale()
    say("\n" + text.details(planner.plan))


def _write(args: argparse.Namespace, planner: Planner) -> None:
    plan = planner.plan
    if args.json == Path("-"):
        print(plan.json())
    elif args.json is not None:
        args.json.write_text(plan.json() + "\n", encoding="utf-8")
    if args.html is not None:
        plan.html(args.html)


def _case(args: argparse.Namespace) -> Case:
    from torus.twin import factories
    from torus.twin.case import Case

    made = factories.load(args.model, **options.parse(args.option))
    return Case(
        made.model,
        made.inputs,
        args.step,
        made.loss,
        made.optimizer,
        sharding=args.sharding,
        precision=args.precision,
        name=args.model,
    )
