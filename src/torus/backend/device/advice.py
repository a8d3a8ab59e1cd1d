"""What the records of ``torch.tpu.explain`` say that a program should do otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from torus.backend.device.amounts import count, show_bytes, show_seconds
from torus.backend.eager.report import Flush, shorten

MANY = 3
"""From so many flushes at one line on, the line is in a loop."""


@dataclass(frozen=True)
class Advice:
    """What to change. `kind` is "repeated flush", "new each time", "op by op", "compiling" or "fallback".

    `place` is the line of the user's program ("" when it is not one line); `flushes` are the numbers of the flushes
    that show it, from 0 on.
    """

    kind: str
    place: str
    flushes: tuple[int, ...]
    text: str


def advise(flushes: Sequence[Flush], fallbacks: dict[str, int]) -> list[Advice]:
    """What the records say that the program should do otherwise."""
    changing = _new_each_time(flushes)
    explained = {number for advice in changing for number in advice.flushes}
    return [
        *_repeated(flushes),
        *changing,
        *_one_by_one(flushes),
        *_compiling(flushes, explained),
        *_fell_back(fallbacks),
    ]


_REPEATED = {
    "host read": (
        "reads a value on the host (.item(), .cpu(), print, `if` on a tensor, nonzero, x[mask])",
        "Keep the values on the device and read them once after the loop, such as torch.stack(values).cpu(), or read "
        "them every tenth time.",
    ),
    "op on the CPU": (
        "runs an op on the CPU, which the device has no lowering for",
        "Use other ops, or add a rule for it; torch.tpu.fallbacks() names it.",
    ),
    "op outside the trace": (
        "runs something that cannot be recorded and needs a recorded value",
        "Move it out of the loop, or do it once for several values.",
    ),
    "copy to another device": (
        "copies a recorded value to another device",
        "Copy after the loop, or several values together.",
    ),
    "synchronize": (
        "synchronizes",
        "Synchronize once after the loop; a read of a value waits by itself.",
    ),
    "event": (
        "records an event",
        "Record events around the loop, not in it.",
    ),
}
"""Causes that a program can avoid: what the line does, and what to do instead."""


def _by_line(flushes: Sequence[Flush]) -> dict[tuple[str, str], list[int]]:
    """(cause, line) -> numbers of its flushes, where there are many."""
    found: dict[tuple[str, str], list[int]] = {}
    for number, flush in enumerate(flushes):
        found.setdefault((flush.cause, flush.place), []).append(number)
    return {key: numbers for key, numbers in found.items() if len(numbers) >= MANY}


def _at(place: str) -> str:
    return shorten(place) or "code of a library"


def _repeated(flushes: Sequence[Flush]) -> list[Advice]:
    """The same line ends the recording many times."""
    found: list[Advice] = []
    for (cause, place), numbers in sorted(_by_line(flushes).items(), key=lambda item: item[0][0]):
        if cause in _REPEATED:
            does, instead = _REPEATED[cause]
            ops = sum(flushes[i].ops for i in numbers) / len(numbers)
            if any(flushes[other.flushes[0]].cause == cause for other in found):
                text = f"{_at(place)} does so too, {len(numbers)} times, after {ops:.3g} ops on average."
            else:
                text = (
                    f"{_at(place)} {does} {len(numbers)} times. Each time ends the recording, after {ops:.3g} ops on "
                    f"average, and ops before and after it cannot be one program. {instead}"
                )
            found.append(Advice("repeated flush", place, tuple(numbers), text))
    return found


def _new_each_time(flushes: Sequence[Flush]) -> list[Advice]:
    """Recordings that end at one line, most of which did not come before."""
    found = []
    for (_, place), numbers in _by_line(flushes).items():
        new = [i for i in numbers if not flushes[i].known]
        if len(new) <= MANY or 2 * len(new) <= len(numbers):
            continue
        pairs = [_what_differs(flushes[a], flushes[b]) for a, b in pairwise(new)]
        kinds = [kind for kind, _ in pairs]
        kind = max(kinds, key=kinds.count)
        example = next(text for other, text in reversed(pairs) if other == kind)
        text = (
            f"{len(new)} of the {len(numbers)} recordings that end at {_at(place)} are new, so each needs programs of "
            f"its own. Between one and the next: {example}. {_MAKE_ALIKE[kind]}"
        )
        found.append(Advice("new each time", place, tuple(new), text))
    return found


_MAKE_ALIKE = {
    "ops": "Let each turn of the loop record the same ops.",
    "sizes": "Keep the shapes, for example by padding to a few lengths.",
    "results": "Keep the shapes, for example by padding to a few lengths, and let the same tensors live at each turn.",
    "rest": "Keep dtypes and arguments that are not numbers, and let the same tensors live at each turn.",
}


def _what_differs(before: Flush, after: Flush) -> tuple[str, str]:
    """A key of `_MAKE_ALIKE`, and the first difference in words."""
    old, new = ([op for segment in flush.segments for op in segment.ops] for flush in (before, after))
    for number, (was, now) in enumerate(zip(old, new)):
        if was.name != now.name:
            return "ops", f"op {number} is {now.name} at {_at(now.place)} instead of {was.name} at {_at(was.place)}"
    if len(old) != len(new):
        extra = (max(old, new, key=len))[min(len(old), len(new))]
        return "ops", f"{count(len(new), 'op')} instead of {len(old)}, from {extra.name} at {_at(extra.place)} on"
    for was, now in zip(old, new):
        if was.results != now.results:
            return "sizes", f"{now.name} at {_at(now.place)} gives {now.results} instead of {was.results}"
    if before.bytes_in != after.bytes_in:
        sizes = f"{show_bytes(after.bytes_in)} instead of {show_bytes(before.bytes_in)}"
        return "sizes", f"the same {count(len(new), 'op')} on other arrays ({sizes})"
    if before.bytes_out != after.bytes_out:
        sizes = f"{show_bytes(after.bytes_out)} instead of {show_bytes(before.bytes_out)}"
        return "results", f"the same {count(len(new), 'op')} with other results ({sizes})"
    return (
        "rest",
        f"the same {count(len(new), 'op')} on as many bytes, so other shapes, dtypes or arguments, or results kept",
    )


def _one_by_one(flushes: Sequence[Flush]) -> list[Advice]:
    """Ops that did not run fused, and when fused programs were compiled meanwhile."""
    found = []
    for fusing in ("never", "background", "foreground"):
        numbers = [i for i, f in enumerate(flushes) if f.how in ("op by op", "mixed") and f.fusing == fusing]
        if not numbers:
            continue
        ops = sum(len(s.ops) for i in numbers for s in flushes[i].segments if s.how == "op by op")
        text = f"{count(ops, 'op')} in {count(len(numbers), 'flush')} ran one by one, "
        if fusing == "never":
            text += 'because torch.tpu.fusing is "never". Set it to "background" or "foreground".'
        elif fusing == "foreground":
            text += "because their fused programs could not be used, or fusing pauses; a FusionWarning says why."
        else:
            text += "because their fused programs are compiled in the background, from the second time on. "
            text += _later(flushes, numbers)
        found.append(Advice("op by op", "", tuple(numbers), text))
    return found


def _later(flushes: Sequence[Flush], numbers: Sequence[int]) -> str:
    last_fused = {flush.place: i for i, flush in enumerate(flushes) if flush.how == "fused"}
    followed = sum(i < last_fused.get(flushes[i].place, -1) for i in numbers)
    if followed == len(numbers):
        return "Later ones at the same lines ran fused: measure after such a warm-up."
    start = f"{followed} of them came before fused ones at the same line. For the others, run" if followed else "Run"
    return f'{start} more turns before you measure, or set torch.tpu.fusing = "foreground" to compile at once.'


def _compiling(flushes: Sequence[Flush], explained: set[int]) -> list[Advice]:
    """Most of the time went into compiling, which comes once."""
    costly = [i for i, f in enumerate(flushes) if f.fusing == "foreground" and f.compiles]
    numbers = [i for i in costly if i not in explained]
    spent, everything = sum(flushes[i].seconds for i in numbers), sum(f.seconds for f in flushes)
    if not numbers or 2 * spent < everything:
        return []
    text = (
        f"{show_seconds(spent)} of the {show_seconds(everything)} in flushes went into {count(len(numbers), 'flush')} "
        "that compiled. That comes once: measure from the second time on."
    )
    return [Advice("compiling", "", tuple(numbers), text)]


def _fell_back(fallbacks: dict[str, int]) -> list[Advice]:
    return [
        Advice(
            "fallback",
            "",
            (),
            f"{op} has no lowering and ran on the CPU {count(times, 'time')}; what it needs was read for it. "
            'torch.tpu.cpu_fallback = "error" shows where.',
        )
        for op, times in fallbacks.items()
    ]
