"""The findings as a short table for a terminal."""

from __future__ import annotations

from typing import Any

from sentences.units import count, mebibytes, seconds, total

COUNTERS = ("programs", "compiles", "cache_hits")


def table(found: dict[str, Any]) -> str:
    """Similarities with the words that matter most, costs and checks."""
    lines = [
        f"{found['device_name']}, torch {found['versions']['torch']}, {found['model']['parameters']:,} parameters",
        "",
    ]
    for pair in found["pairs"]:
        lines.append(f"{pair['similarity']:+.4f}  similarity")
        lines += [f"         {side['sentence']}  [{_strongest(side['tokens'])}]" for side in pair["sides"]]
    lines += ["", f"{'':26}{'time':>10}{'programs':>10}{'compiles':>10}{'cache hits':>12}"]
    for work in found["cost"]:
        for call in ("first", "warm"):
            numbers = [count(work[call]["counters"], name) for name in COUNTERS]
            lines.append(
                f"{work['name'] + ', ' + call:26}{seconds(work[call]['seconds']):>10}"
                f"{numbers[0]:>10}{numbers[1]:>10}{numbers[2]:>12}"
            )
    lines += ["", f"peak memory {mebibytes(found['peak_memory_bytes'])}, CPU fallbacks {total(found['fallbacks'])}", ""]
    for check in found["checks"]:
        verdict = "ok" if check["passed"] else "FAILED"
        lines.append(f"{check['name']:34}{check['value']:.1e}   limit {check['limit']:.0e}   {verdict}")
    return "\n".join(lines)


def _strongest(tokens: list[dict[str, Any]], number: int = 3) -> str:
    best = sorted(tokens, key=lambda token: -abs(token["score"]))[:number]
    return ", ".join(f"{token['text']} {token['score']:+.3f}" for token in best)
