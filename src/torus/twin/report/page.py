"""A plan as one HTML page, or a part of a notebook."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from torus.cli import texts
from torus.explain.report import markup
from torus.explain.report.markup import escape
from torus.twin.report import figures, tables
from torus.twin.report.words import binary, decimal, seconds

if TYPE_CHECKING:
    from torus.twin.planning import Answer, Plan
    from torus.twin.scaling import Kind

CERTAINTY = {
    "analytic": "from the program's text alone",
    "composed": "from the TPU compiler's result for each distinct block",
    "exact": "from the TPU compiler's result for the whole program",
}


def page(plan: Plan) -> str:
    """One HTML file: no script, no font, no image beside it."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(plan.title)}</title></head>\n<body>{fragment(plan)}</body></html>\n"
    )


def fragment(plan: Plan) -> str:
    """The same inside of another page: every rule of its style is about its own elements alone."""
    parts = [_verdict(plan), _memory(plan), *(_table(each) for each in tables.tables(plan)), *_scaling(plan)]
    if plan.numerics is not None:
        parts.append(f'<h2>Numerics</h2><section class="card"><pre>{escape(plan.numerics.table())}</pre></section>')
    parts.append(_assumptions(plan))
    body = "\n".join(parts)
    title = escape(f"{plan.name} on {plan.topology.name}")
    return (
        f"<style>\n{_style()}</style>\n"
        f'<main class="torus-explain torus-twin auto">\n<header><h1>{title}</h1><p>{_subtitle(plan)}</p></header>\n'
        f"{body}\n</main>"
    )


def _subtitle(plan: Plan) -> str:
    place = plan.topology
    mesh = ", ".join(f"{axis}={size}" for axis, size in plan.mesh.items())
    parts = [f"<b>{plan.step}</b> step"]
    parts += [f"batch <b>{plan.batch:,}</b>"] if plan.batch is not None else []
    parts += [f"<b>{texts.plural(place.chips, 'chip')}</b>, {texts.plural(place.devices, 'device')}"]
    parts += [f"mesh <b>{escape(mesh)}</b>, sharding <b>{escape(plan.sharding)}</b>"] if mesh else []
    return "; ".join(parts)


def _verdict(plan: Plan) -> str:
    said = plan.verdict
    lines = "".join(f"<small>{_answer(each)}</small>" for each in plan.answers)
    words = escape(str(said)[0].upper() + str(said)[1:])
    kind = "good" if said.fits else "bad"
    return f'<section class="card"><p class="verdict"><span class="{kind}">{words}</span>{lines}</p></section>'


def _answer(found: Answer) -> str:
    said = str(found.verdict or "no answer") + (f": {found.reason}" if found.reason else "")
    return f"<b>{found.certainty}</b>, {CERTAINTY[found.certainty]}: {escape(said)} ({seconds(found.seconds)} here)"


def _memory(plan: Plan) -> str:
    return f'<h2>Memory of a device at the peak</h2><section class="card">{figures.memory(plan).svg()}</section>'


def _table(table: tables.Table) -> str:
    return f"<h2>{escape(table.title)}</h2>{_rows(table)}"


def _rows(table: tables.Table) -> str:
    head, rows = [escape(cell) for cell in table.head], [[escape(cell) for cell in row] for row in table.rows]
    note = f'<p class="sum">{escape(table.note)}</p>' if table.note else ""
    return markup.table(head, rows, "words" if table.words else "") + note


def _scaling(plan: Plan) -> list[str]:
    """Both plots, then each curve's figures for who opens them."""
    if not plan.scaling:
        return []
    names: dict[Kind, str] = {"weak": "weak: the batch grows with the chips", "strong": "strong: one batch for all"}
    plots = "".join(
        f'<section class="card"><p class="label">{name}</p>{figures.efficiency(plan.scaling, kind).svg()}</section>'
        for kind, name in names.items()
        if any(curve.kind == kind for curve in plan.scaling)
    )
    legend = (
        '<p class="sum">Examples a second and device, against the smallest topology. Thick: links work beside the '
        "arithmetic, which is assumed; thin: one waits for the other. Red: it does not fit into the memory.</p>"
    )
    made = [tables.curve(curve) for curve in plan.scaling]
    details = [markup.summary(escape(table.title), f"<div>{_rows(table)}</div>") for table in made]
    return [f'<h2>Scaling</h2><div class="plots">{plots}</div>{legend}', *details]


def _assumptions(plan: Plan) -> str:
    chip = plan.topology.chip
    peaks = ", ".join(f"{decimal(peak, 'FLOP/s')} {dtype}" for dtype, peak in chip.flops.items())
    facts = {
        "HBM that a program may use": binary(chip.hbm_bytes),
        "HBM bandwidth": decimal(chip.hbm_bandwidth, "B/s"),
        "Peak arithmetic": peaks,
        "Links": f"{chip.links} of {decimal(chip.link_bandwidth, 'B/s')} each way",
        "Source": chip.source,
    }
    shown = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts.items())
    notes = "".join(f"<li>{escape(note)}</li>" for note in plan.notes)
    return (
        f'<h2>A device of {escape(chip.family)}</h2><section class="card"><dl class="facts">{shown}</dl></section>'
        + (f"<h2>Assumed and left out</h2><ul>{notes}</ul>" if notes else "")
    )


def _style() -> str:
    names = ("torus.explain.report", "torus.twin.report")
    return "".join((files(name) / "style.css").read_text(encoding="utf-8") for name in names)
