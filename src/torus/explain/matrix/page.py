"""The matrix as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from torus.backend.device.amounts import show_bytes, show_seconds
from torus.explain.matrix.measure import Cell
from torus.explain.matrix.table import note, number

_SIGNS = {"ok": "✓", "miss": "✗", "skip": "-"}


def page(cells: Sequence[Cell], versions: Mapping[str, str]) -> str:
    """A row for each method and model, a group of columns for each mode; in light and dark."""
    modes = list(dict.fromkeys(cell.mode for cell in cells))
    body = "\n".join([_cards(cells, modes), _misses(cells), _filter(), _legend(), _table(cells, modes)])
    about = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Captum on the device</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        "<h1>Captum on the device</h1>\n"
        f'<p class="quiet">{len(cells)} cells; {escape(about)}. Errors are the largest '
        "difference from the CPU in units of the largest attribution; times are those of the second call.</p>\n"
        f"{body}\n</main>\n<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


def _cards(cells: Sequence[Cell], modes: Sequence[str]) -> str:
    cards = "".join(_card(mode, [cell for cell in cells if cell.mode == mode]) for mode in modes)
    return f'<dl class="figures">{cards}</dl>'


def _card(mode: str, cells: Sequence[Cell]) -> str:
    ran = [cell for cell in cells if cell.status != "skip"]
    good = sum(cell.status == "ok" for cell in ran)
    worst = max((cell.error for cell in ran if cell.error is not None), default=None)
    kind = "good" if good == len(ran) else "bad"
    return (
        f'<div class="{kind}"><dt>{escape(mode)}</dt><dd>{good} of {len(ran)}</dd>'
        f'<dd class="quiet">worst error {number(worst)}</dd></div>'
    )


def _misses(cells: Sequence[Cell]) -> str:
    """What there is to mend, before everything else."""
    missed = [cell for cell in cells if cell.status == "miss"]
    if not missed:
        return ""
    items = "\n".join(f"<li><b>{escape(f'{c.model}: {c.case}')}</b>, {c.mode}: {_why(c)}</li>" for c in missed)
    return f'<h2>{len(missed)} miss{"es" * (len(missed) > 1)}</h2>\n<ul class="misses">\n{items}\n</ul>'


def _why(cell: Cell) -> str:
    error = "" if cell.error is None else f"error {number(cell.error)}, the limit {number(cell.limit)}"
    return escape("; ".join(filter(None, (error, note(cell)))))


def _legend() -> str:
    return (
        f'<p class="quiet">{_SIGNS["ok"]} as right as the CPU, {_SIGNS["miss"]} a miss, {_SIGNS["skip"]} not run; '
        "* compared with float64, or there is more to say: point at it. Memory is the peak of a call.</p>"
    )


def _filter() -> str:
    return (
        '<p><label>Show <input id="find" type="search" placeholder="part of a name"></label> '
        '<label><input id="bad" type="checkbox"> misses only</label></p>'
    )


def _table(cells: Sequence[Cell], modes: Sequence[str]) -> str:
    groups: dict[tuple[str, str], dict[str, Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.model, cell.case), {})[cell.mode] = cell
    heads = "".join(f'<th colspan="4" scope="colgroup" class="group">{escape(mode)}</th>' for mode in modes)
    names = '<th class="first">error</th><th>time</th><th>programs</th><th>memory</th>' * len(modes)
    body = "\n".join(_row(model, case, [found.get(mode) for mode in modes]) for (model, case), found in groups.items())
    return (
        '<div class="wide"><table><thead><tr><th rowspan="2" class="name">model</th>'
        f'<th rowspan="2" class="name">case</th><th rowspan="2">CPU</th>{heads}</tr>'
        f"<tr>{names}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _row(model: str, case: str, cells: Sequence[Cell | None]) -> str:
    kind = ' class="miss"' if any(cell is not None and cell.status == "miss" for cell in cells) else ""
    cpu = next((show_seconds(cell.cpu_seconds) for cell in cells if cell and cell.cpu_seconds), "")
    columns = "".join(map(_columns, cells))
    return f'<tr{kind}><td>{escape(model)}</td><th scope="row">{escape(case)}</th><td>{cpu}</td>{columns}</tr>'


def _columns(cell: Cell | None) -> str:
    if cell is None:
        return '<td colspan="4" class="first"></td>'
    if cell.error is None:
        return f'<td colspan="4" class="first {cell.status} words">{_SIGNS[cell.status]} {escape(note(cell))}</td>'
    title = f' title="{escape(note(cell))}"' if note(cell) else ""
    more = "*" if note(cell) else ""
    time = show_seconds(cell.seconds) if cell.seconds is not None else ""
    memory = show_bytes(cell.peak_memory) if cell.peak_memory is not None else ""
    return (
        f'<td class="first {cell.status}"{title}>{_SIGNS[cell.status]} {number(cell.error)}{more}</td>'
        f"<td>{time}</td><td>{cell.programs}</td><td>{memory}</td>"
    )


_STYLE = """
:root{color-scheme:light dark;--back:#fff;--text:#1d2430;--quiet:#667085;
--line:#e3e7ee;--good:#12805c;--bad:#c2281d;--card:#f6f8fb}
@media (prefers-color-scheme: dark){:root{--back:#12161d;--text:#e6e9ef;--quiet:#98a2b3;
--line:#2a313d;--good:#4ecb9c;--bad:#ff7a6e;--card:#1a202a}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--text);font:15px/1.5 system-ui,sans-serif}
main{max-width:100rem;margin:0 auto;padding:2rem 1rem}
h1{margin:0 0 .3rem;font-size:1.6rem}
h2{margin:1.2rem 0 .3rem;font-size:1.05rem;color:var(--bad)}
.misses{margin:0;padding-left:1.2rem;font-size:.9rem;overflow-wrap:anywhere}
.quiet{color:var(--quiet);font-size:.87rem;font-weight:400}
.figures{display:flex;flex-wrap:wrap;gap:.8rem;margin:1.2rem 0}
.figures div{background:var(--card);border-radius:10px;padding:.7rem 1.1rem;
min-width:11rem;border-left:4px solid var(--good)}
.figures .bad{border-color:var(--bad)}
dt{color:var(--quiet);font-size:.85rem}
dd{margin:0;font-size:1.35rem;font-weight:600;font-variant-numeric:tabular-nums}
dd.quiet{font-size:.85rem}
input[type=search]{font:inherit;padding:.3rem .6rem;border:1px solid var(--line);border-radius:7px;
background:var(--card);color:inherit;margin:0 1rem 0 .3rem}
.wide{overflow:auto;max-height:90vh}
table{border-collapse:separate;border-spacing:0;font-size:.82rem;font-variant-numeric:tabular-nums;width:100%}
th,td{padding:.26rem .45rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
thead{position:sticky;top:0;z-index:2}
thead th{color:var(--quiet);font-weight:600;background:var(--back)}
th.name,th.group,tbody th,td:first-child{text-align:left}
tbody th{position:sticky;left:0;z-index:1;background:var(--back);font-weight:500;white-space:normal;min-width:13rem}
tbody tr:hover>*{background:var(--card)}
.first,.group{border-left:1px solid var(--line)}
.ok{color:var(--good)}.skip{color:var(--quiet)}
.miss td.miss{color:var(--bad);font-weight:600}
.miss th{box-shadow:inset 3px 0 var(--bad)}
.words{text-align:left;white-space:normal;min-width:16rem;overflow-wrap:anywhere}
"""

_SCRIPT = """
const find=document.getElementById('find'),bad=document.getElementById('bad');
const show=()=>{for(const row of document.querySelectorAll('tbody tr'))
row.hidden=!row.textContent.toLowerCase().includes(find.value.toLowerCase())||bad.checked&&!row.classList.contains('miss');};
find.addEventListener('input',show);bad.addEventListener('change',show);
"""
