"""A plan as text."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from torus.cli import texts
from torus.twin.report import tables
from torus.twin.report.words import binary, seconds

if TYPE_CHECKING:
    from torus.twin.planning import Answer, Plan

WIDTH = 110


def text(plan: Plan) -> str:
    """Everything that is known."""
    return "\n".join([head(plan), *(answer(each) for each in plan.answers), "", details(plan)])


def details(plan: Plan) -> str:
    """All but the answers themselves."""
    parts = [table(each) for each in tables.tables(plan)]
    parts += [table(tables.curve(curve)) for curve in plan.scaling]
    if plan.numerics is not None:
        parts.append(str(plan.numerics))
    notes = "\n".join(textwrap.fill(note, WIDTH, initial_indent="- ", subsequent_indent="  ") for note in plan.notes)
    return "\n\n".join([*parts, *([f"Assumed and left out\n{notes}"] if notes else [])])


def head(plan: Plan) -> str:
    """What is planned."""
    chip, place = plan.topology.chip, plan.topology
    devices = f"{texts.plural(place.chips, 'chip')}, {texts.plural(place.devices, 'device')}"
    return f"{plan.title}\n{devices} with {binary(chip.hbm_bytes)} of HBM each"


def answer(found: Answer) -> str:
    """The verdict of one certainty, on one line."""
    said = found.verdict or "no answer"
    reason = f": {found.reason}" if found.reason else ""
    return f"{found.certainty + ':':<9} {said}{reason}  [{seconds(found.seconds)}]"


def table(table: tables.Table) -> str:
    """Title, aligned columns, note."""
    lines = texts.table([table.head, *table.rows], right=range(1, len(table.head) - 1))
    note = f"\n{textwrap.fill(table.note, WIDTH)}" if table.note else ""
    return f"{table.title}\n{textwrap.indent(lines, '  ')}{note}"
