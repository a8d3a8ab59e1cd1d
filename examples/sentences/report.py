"""The findings as one HTML file that needs nothing else: no script, no font, no image, light and dark."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from sentences.units import count, mebibytes, seconds, total

STYLE = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")
COUNTED = (("programs", "Programs launched"), ("compiles", "Compiles"), ("cache_hits", "Cache hits"))


def render(found: dict[str, Any]) -> str:
    """The whole report; `found` is described in `sentences.results`."""
    scale = max(abs(t["score"]) for pair in found["pairs"] for side in pair["sides"] for t in side["tokens"]) or 1.0
    passed = all(check["passed"] for check in found["checks"])
    body = "\n".join(
        [
            "<header><h1>Why are these sentences similar?</h1>",
            f"<p>{escape(found['model']['name'])}, {found['model']['parameters']:,} parameters, on "
            f"<b>{escape(found['device_name'])}</b> (device <code>{escape(found['device'])}</code>). "
            f"{_verdict(passed, 'all checks passed', 'a check failed')}</p>",
            "</header>",
            _legend(scale),
            *(_pair(pair, scale) for pair in found["pairs"]),
            _costs(found),
            _checks(found["checks"], found["steps"]),
            _facts(found),
        ]
    )
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>Why are these sentences similar?</title>\n<style>\n{STYLE}</style></head>\n"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def _legend(scale: float) -> str:
    steps = "".join(f"<i style='{_shade(x / 4, 1.0)}'></i>" for x in range(-4, 5))
    return (
        f"<section class='legend'><span>{-scale:+.2f} pulls apart</span><span class='ramp'>{steps}</span>"
        f"<span>{scale:+.2f} makes similar</span>"
        "<p>Under each word: its share of the cosine similarity with the other sentence, which is held fixed. "
        "The shares and the baseline (every word replaced by the padding token) add up to the similarity.</p></section>"
    )


def _pair(pair: dict[str, Any], scale: float) -> str:
    sides = "".join(_side(side, pair["similarity"], scale) for side in pair["sides"])
    return (
        f"<section class='card'><div class='score'><b>{pair['similarity']:.3f}</b>"
        f"<small>cosine similarity</small></div><div>{sides}</div></section>"
    )


def _side(side: dict[str, Any], similarity: float, scale: float) -> str:
    tokens = "".join(
        f"<span class='token{' joined' if token['continues'] else ''}' style='{_shade(token['score'], scale)}'>"
        f"{escape(token['text'])}<small>{token['score']:+.3f}</small></span>"
        for token in side["tokens"]
    )
    shares = sum(token["score"] for token in side["tokens"])
    return (
        f"<div class='sentence'>{tokens}</div><p class='sum'>words {shares:+.4f}, baseline {side['baseline']:+.4f}, "
        f"similarity {similarity:+.4f}, convergence delta {side['delta']:+.1e}</p>"
    )


def _costs(found: dict[str, Any]) -> str:
    rows = [
        [f"{_sentence_case(work['name'])}, {label}", seconds(work[call]["seconds"])]
        + [count(work[call]["counters"], name) for name, _ in COUNTED]
        for work in found["cost"]
        for call, label in (("first", "first call"), ("warm", "warm (time: median)"))
    ]
    return (
        "<section><h2>What it cost</h2>"
        + _table(["Work", "Time", *(title for _, title in COUNTED)], rows)
        + "</section>"
    )


def _checks(checks: list[dict[str, Any]], steps: int) -> str:
    rows = [
        [
            _sentence_case(check["name"]),
            f"{check['value']:.1e}",
            f"{check['limit']:.0e}",
            _verdict(check["passed"], "passed", "failed"),
        ]
        for check in checks
    ]
    return (
        "<section><h2>Can it be trusted?</h2>"
        + _table(["Check", "Value", "Limit", "Verdict"], rows)
        + "<p class='note'>Errors are the largest difference from PyTorch on the CPU in float32, relative to the "
        f"largest CPU value. The convergence delta, after {steps} steps, is relative to the difference between "
        "sentence and baseline; the worst sentence is shown.</p></section>"
    )


def _facts(found: dict[str, Any]) -> str:
    rows = [
        ["Peak memory on the device", mebibytes(found["peak_memory_bytes"])],
        ["Ops that fell back to the CPU", escape(total(found["fallbacks"]))],
        ["Model", f"<code>{escape(found['model']['directory'])}</code>"],
        ["Versions", escape(", ".join(f"{name} {version}" for name, version in found["versions"].items()))],
    ]
    return "<section><h2>Where it ran</h2>" + _table(["Device", escape(found["device_name"])], rows) + "</section>"


def _table(head: list[str], rows: list[list[str]]) -> str:
    """A table from cells that are HTML already."""
    top = "".join(f"<th scope='col'>{cell}</th>" for cell in head)
    body = "".join(
        f"<tr><th scope='row'>{row[0]}</th>" + "".join(f"<td>{c}</td>" for c in row[1:]) + "</tr>" for row in rows
    )
    return f"<div class='scroll'><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"


def _sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]


def _verdict(passed: bool, good: str, bad: str) -> str:
    return f"<span class='verdict {'good' if passed else 'bad'}'>{good if passed else bad}</span>"


def _shade(score: float, scale: float) -> str:
    """Blue for positive, orange for negative (colour-blind readers can tell them apart); stronger for larger scores."""
    colour = "var(--positive)" if score >= 0 else "var(--negative)"
    return f"background:rgb({colour} / {min(1.0, abs(score) / scale) * 0.75:.3f})"
