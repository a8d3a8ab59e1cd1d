"""What ``torus explain`` does."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import torch

from torus.cli import CommandError, options, texts
from torus.cli.explain import inputs, models
from torus.cli.progress import Stage
from torus.explain import METHODS, explain
from torus.explain.methods import Run
from torus.explain.plan import plan
from torus.explain.report.certificate import verdict
from torus.explain.report.markup import number
from torus.explain.result import Explanation
from torus.explain.run import as_baselines
from torus.explain.text import TextExplanation, TokenMatrix, explain_each_token, explain_text, plan_text

KINDS = {"text": "text", "chat": "text", "image": "image", "table": "table"}


def list_methods() -> int:
    """Print the table of methods."""
    print(texts.table([["method", "what it is"], *([name, what] for name, (_, _, what) in METHODS.items())]))
    return 0


def run(args: argparse.Namespace) -> int:
    """Explain, print and write."""
    given = [name for name in KINDS if getattr(args, name) is not None]
    if args.model is None:
        raise CommandError("give a MODEL: a local Hugging Face directory, package.module:factory or file.py:factory")
    if len(given) != 1:
        raise CommandError("give one input: --text, --chat, --image or --table")
    kind = KINDS[given[0]]
    model, prepare = models.load(args.model, kind)
    try:
        model = model.to(args.device).eval().requires_grad_(False)
    except RuntimeError as error:
        raise CommandError(f"the device {args.device}: {error}") from error
    try:
        found, names = _text(args, model, prepare) if kind == "text" else _tensor(args, model, prepare)
    except (ValueError, TypeError, ImportError) as error:
        raise CommandError(str(error)) from error
    if found is None:
        return 0
    return _written(args, found, names)


def _text(args: argparse.Namespace, model: Any, tokenizer: Any) -> tuple[Any, None]:
    if tokenizer is None:
        raise CommandError("for a text the factory has to return a pair: the model and its tokenizer")
    prompt = inputs.read_chat(args.chat) if args.chat else sys.stdin.read() if args.text == "-" else args.text
    asked = {
        name: getattr(args, name)
        for name in ("target", "against", "generate", "similar_to", "by", "score", "replacement")
        if getattr(args, name) not in (None, 0)
    }
    asked["method"] = args.method or "feature_ablation"
    if args.plan:
        print(
            plan_text(model, tokenizer, prompt, chunk=args.chunk, tol=args.tol, **asked, **options.parse(args.option))
        )
        return None, None
    called = explain_each_token if args.each_token else explain_text
    settings = _settings(args)
    with Stage(asked["method"]) as stage:
        if called is explain_text:
            settings["progress"] = stage.update
        return called(model, tokenizer, prompt, **asked, **settings, **options.parse(args.option)), None


def _tensor(args: argparse.Namespace, model: Any, prepare: Any) -> tuple[Explanation | None, tuple[str, ...] | None]:
    """An image or a row of a table."""
    table = inputs.read_table(args.table, args.row, args.columns) if args.table else None
    given = table.row if table else inputs.read_image(args.image, prepare, args.size)
    points = given.to(args.device)
    method, baseline = args.method or "input_x_gradient", _baseline(args, table)
    if args.plan:
        run = Run(tolerance=args.tol, seed=args.seed, chunk=args.chunk)
        print(plan(method, (given,), as_baselines(baseline, (given,)), run, **options.parse(args.option)))
        return None, None
    target = _target(args, model, points)
    if isinstance(baseline, torch.Tensor):
        baseline = baseline.to(args.device)
    with Stage(method) as stage:
        found = explain(
            model,
            points,
            target,
            method=method,
            baselines=baseline,
            layer=args.layer,
            progress=stage.update,
            **_settings(args),
            **options.parse(args.option),
        )
    return found, table.names if table and args.layer is None else None


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """What is told to `explain` as it is."""
    settings = {"tol": args.tol, "mode": args.mode, "seed": args.seed}
    if args.chunk is not None:
        settings["chunk"] = args.chunk
    if args.budget is not None:
        settings["budget"] = args.budget
    return settings


def _baseline(args: argparse.Namespace, table: inputs.Table | None) -> torch.Tensor | float:
    wanted = args.baseline or ("mean" if table else "zero")
    if wanted == "mean":
        if table is None:
            raise CommandError("--baseline mean is for tables; give zero or a number")
        return table.rows.mean(0, keepdim=True)
    try:
        return 0.0 if wanted == "zero" else float(wanted)
    except ValueError:
        raise CommandError(f"--baseline {wanted}: it has to be zero, mean or a number") from None


def _target(args: argparse.Namespace, model: Any, points: torch.Tensor) -> Any:
    """A class, the most likely one if none is given; None where the model gives one number."""
    for name in ("generate", "similar_to", "replacement", "score"):
        if getattr(args, name):
            raise CommandError(f"--{name.replace('_', '-')} is for texts")
    with torch.no_grad():
        output = model(points)
    logits = getattr(output, "logits", output)
    if logits[0].numel() == 1 and args.target is None:
        return None
    chosen = int(logits[0].argmax()) if args.target is None else _class(model, args.target)
    if args.against is None:
        return chosen
    rival = _class(model, args.against)

    def difference(output: Any) -> torch.Tensor:
        logits: torch.Tensor = getattr(output, "logits", output)
        return logits[:, chosen] - logits[:, rival]

    return difference


def _class(model: Any, name: str) -> int:
    labels = getattr(getattr(model, "config", None), "label2id", None) or {}
    if name in labels:
        return int(labels[name])
    try:
        return int(name)
    except ValueError:
        known = f"; there are {', '.join(labels)}" if labels else ", and the model names none"
        raise CommandError(f"the class {name!r} is no number{known}") from None


def _written(args: argparse.Namespace, found: Any, names: tuple[str, ...] | None) -> int:
    certificates = found.certificates if isinstance(found, TokenMatrix) else (found.certificate,)
    for path in args.out:
        found.save(path, title=args.title, names=names, theme=args.theme)
    if args.json:
        print(json.dumps(_dictionary(found, names), indent=2, ensure_ascii=False))
    else:
        print(_shown(found, names))
        print("\n".join(sorted({verdict(certificate) for certificate in certificates})))
        for path in args.out:
            print(f"written: {path}")
    return 0 if all(certificate.passed for certificate in certificates) else 1


def _features(found: Any, names: tuple[str, ...] | None) -> tuple[list[str], list[float]]:
    if isinstance(found, TextExplanation):
        return list(found.texts), list(found.scores)
    if isinstance(found, TokenMatrix):
        return [found.tokens.text[start:end] for start, end in found.segments], found.scores.sum(0).tolist()
    from torus.explain.report.panels import features

    first = found.attributions[0][0]
    return features(found.points[0][0], first, names)[:2]


def _shown(found: Any, names: tuple[str, ...] | None, most: int = 10) -> str:
    """The strongest features."""
    pairs = sorted(zip(*_features(found, names)), key=lambda pair: -abs(pair[1]))
    rows = [[number(score), " ".join(name.split())[:80]] for name, score in pairs[:most]]
    left = f"\nand {len(pairs) - most:,} smaller ones" if len(pairs) > most else ""
    title = getattr(found, "question", "score")
    return f"{title}\n{texts.table(rows, right=(0,))}{left}"


def _dictionary(found: Any, names: tuple[str, ...] | None) -> dict[str, Any]:
    """Everything, ready for JSON."""
    labels, scores = _features(found, names)
    result: dict[str, Any] = {"scores": [{"name": name, "score": score} for name, score in zip(labels, scores)]}
    if isinstance(found, TextExplanation | TokenMatrix):
        result["question"] = found.question
        for entry, (start, end) in zip(result["scores"], found.segments):
            entry |= {"start": start, "end": end}
    if isinstance(found, TokenMatrix):
        result["tokens"] = [
            {"text": text, "value": value, "scores": row}
            for text, value, row in zip(found.generated, found.values, found.scores.tolist())
        ]
        return result | {"certificates": [certificate.to_dict() for certificate in found.certificates]}
    result |= {"value": float(found.values[0]), "baseline_value": float(found.baseline_values[0])}
    return result | {"certificate": found.certificate.to_dict()}
