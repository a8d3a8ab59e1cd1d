"""The report of ``torch.tpu.explain`` as one HTML page, which needs nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape

from torus.backend.device.amounts import show_bytes, show_seconds
from torus.backend.device.explain import HEADINGS, NO_ADVICE, Report, row, total
from torus.backend.eager.report import Flush, SegmentRecord, shorten

_MOST = 2000
"""So many flushes are drawn; more would make a page that no browser likes."""
_HOVER_LINES = 12
_HOWS = ("fused", "op by op", "mixed", "one program", "not needed")
_TICKS = 4


def page(report: Report) -> str:
    """The page's text: figures, timeline, advice and table, in light and dark. Times count from the block's begin."""
    report = Report.from_dict(report.to_dict())  # a copy that stands still, with times from zero on
    sections = [_figures(report), _timeline(report), _advice(report), _table(report), _counted(report)]
    body = "\n".join(filter(None, sections))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>torch.tpu.explain</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>When recorded ops ran, and why</h1>\n{body}\n</main>\n"
        f'<div id="tip" role="tooltip" hidden></div>\n<script>{_SCRIPT}</script>\n</body>\n</html>\n'
    )


def _figures(report: Report) -> str:
    flushes = report.flushes
    figures = [
        ("flushes", str(len(flushes))),
        ("ops", str(sum(f.ops for f in flushes))),
        ("programs", str(sum(f.programs for f in flushes))),
        ("time in flushes", show_seconds(sum(f.seconds for f in flushes))),
        ("time of the block", show_seconds(report.seconds)),
    ]
    cards = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in figures)
    note = f'<p class="note">{escape(report.note)}</p>' if report.note else ""
    setting = f"Mode <code>{escape(report.mode)}</code>, fusing <code>{escape(report.fusing)}</code>."
    return f'<p class="quiet">{setting}</p>\n{note}<dl class="figures">{cards}</dl>'


def _timeline(report: Report) -> str:
    if not report.flushes:
        return ""
    span = max(report.seconds, report.flushes[-1].end, 1e-9)
    shown = list(enumerate(report.flushes))[:_MOST]
    lanes = []
    for how in _HOWS:
        bars = "".join(_bar(number, flush, span) for number, flush in shown if flush.how == how)
        if bars:
            lanes.append(f'<div class="lane"><span class="label {_css(how)}">{how}</span><div>{bars}</div></div>')
    ticks = "".join(
        f'<span style="left:{100 * i / _TICKS:.0f}%">{show_seconds(span * i / _TICKS)}</span>'
        for i in range(_TICKS + 1)
    )
    return (
        "<section><h2>Timeline</h2>\n"
        '<p class="quiet">A bar is a flush; between bars, ops were recorded or other code ran. '
        f"Point at a bar for its ops, click it for its row.{_more(report)}</p>\n"
        f'<div class="timeline">{"".join(lanes)}<div class="lane axis"><span></span><div>{ticks}</div></div></div>'
        "</section>"
    )


def _more(report: Report) -> str:
    hidden = len(report.flushes) - _MOST
    return f" The last {hidden} flushes are not drawn." if hidden > 0 else ""


def _bar(number: int, flush: Flush, span: float) -> str:
    left, width = 100 * max(0.0, flush.start) / span, 100 * flush.seconds / span
    return (
        f'<a class="bar {_css(flush.how)}" href="#flush-{number}" style="left:{left:.4f}%;width:{width:.4f}%" '
        f'title="{escape(_hover(number, flush))}"></a>'
    )


def _css(how: str) -> str:
    return how.replace(" ", "-")


def _hover(number: int, flush: Flush) -> str:
    """What a bar says when it is pointed at."""
    ops = [line for segment in flush.segments for line in _ops(segment)]
    hidden = len(ops) - _HOVER_LINES
    lines = [
        f"flush {number}: {flush.cause}, {show_seconds(flush.seconds)}",
        shorten(flush.place),
        f"{flush.ops} ops, {flush.programs} programs; {flush.how}, {flush.origin}",
        f"{show_bytes(flush.bytes_in)} in, {show_bytes(flush.bytes_out)} out",
        *ops[:_HOVER_LINES],
        *([f"and {hidden} more"] if hidden > 0 else []),
    ]
    return "\n".join(filter(None, lines))


def _ops(segment: SegmentRecord) -> list[str]:
    """A line for each kind of op and line of the program, in the order of the first."""
    counts = Counter((op.name, shorten(op.place)) for op in segment.ops)
    return [f"{f'{n} x ' if n > 1 else ''}{name}  {place}".rstrip() for (name, place), n in counts.items()]


def _advice(report: Report) -> str:
    if not report.flushes and not report.advice:
        return ""
    items = "".join(f"<li>{escape(a.text)}{_links(a.flushes)}</li>" for a in report.advice)
    return f"<section><h2>What to change</h2>\n<ul>{items or f'<li>{NO_ADVICE}</li>'}</ul></section>"


def _links(numbers: Sequence[int]) -> str:
    """The first rows that show what the advice is about."""
    if not numbers:
        return ""
    links = ", ".join(f'<a href="#flush-{i}">{i}</a>' for i in numbers[:5] if i < _MOST)
    return f' <span class="quiet">Flushes {links}{", ..." if len(numbers) > 5 else ""}</span>'


def _table(report: Report) -> str:
    if not report.flushes:
        return ""
    head = _cells(HEADINGS, "th")
    rows = "\n".join(_row(i, flush) for i, flush in enumerate(report.flushes[:_MOST]))
    last = _cells(total(report.flushes), "td")
    return (
        "<section><h2>Flushes</h2>\n"
        '<p class="quiet">Open a row\'s number of ops to see them. Bytes are those of the arrays that were there '
        "before (in) and of the results that are kept (out).</p>\n"
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody>\n'
        f"<tfoot><tr>{last}</tr></tfoot></table></div></section>"
    )


def _cells(cells: Sequence[str], tag: str) -> str:
    return "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)


def _row(number: int, flush: Flush) -> str:
    cells = [f"<td>{escape(cell)}</td>" for cell in row(number, flush)]
    cells[HEADINGS.index("line")] = f'<td title="{escape(flush.place)}">{escape(shorten(flush.place))}</td>'
    cells[HEADINGS.index("ops")] = f"<td><details><summary>{flush.ops}</summary>{_details(flush)}</details></td>"
    how = HEADINGS.index("how")
    cells[how] = cells[how].replace("<td>", f'<td class="how {_css(flush.how)}">', 1)
    return f'<tr id="flush-{number}">{"".join(cells)}</tr>'


def _details(flush: Flush) -> str:
    blocks = (f"{segment.how}:\n" + "\n".join(f"  {line}" for line in _ops(segment)) for segment in flush.segments)
    return f"<pre>{escape(chr(10).join(blocks))}</pre>"


def _counted(report: Report) -> str:
    counts = {**report.counters, **{f"{op} on the CPU": n for op, n in report.fallbacks.items()}}
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{count}</dd></div>" for name, count in counts.items())
    return f'<section><h2>Counted in the block</h2>\n<dl class="figures small">{items}</dl></section>'


_STYLE = """
:root { color-scheme: light dark; --ground: #fff; --text: #1b2026; --quiet: #5a6572; --line: #d9dee4; --soft: #f4f6f8;
  --fused: #0b7a6b; --single: #b94e00; --mixed: #7447c4; --one: #35689e; --none: #8a94a0; }
@media (prefers-color-scheme: dark) { :root { --ground: #14181d; --text: #e4e8ed; --quiet: #9aa6b3; --line: #323a44;
  --soft: #1d232a; --fused: #35c4ae; --single: #ff9a4d; --mixed: #b794ff; --one: #74aef0; --none: #7b8794; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 72rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .25rem; }
a { color: inherit; } code, pre, td { font-family: ui-monospace, monospace; font-size: .85rem; }
.quiet { color: var(--quiet); margin: .25rem 0; }
.note { border-left: 4px solid var(--single); padding: .25rem .75rem; }
li { margin: .4rem 0; max-width: 60rem; }
.figures { display: flex; flex-wrap: wrap; gap: .5rem; margin: 1rem 0; }
.figures div { background: var(--soft); border: 1px solid var(--line); border-radius: .4rem; padding: .4rem .9rem; }
.figures dt { color: var(--quiet); font-size: .8rem; } .figures dd { margin: 0; font-size: 1.3rem; }
.small dd { font-size: 1rem; }
.lane { display: grid; grid-template-columns: 7rem 1fr; align-items: center; margin: .2rem 0; }
.lane > div { position: relative; height: 1.6rem; background: var(--soft); }
.axis > div { background: none; border-top: 1px solid var(--line); }
.axis div span { position: absolute; transform: translateX(-50%); color: var(--quiet); font-size: .75rem;
  white-space: nowrap; }
.axis div span:first-child { transform: none; } .axis div span:last-child { transform: translateX(-100%); }
.label { border-left: .8rem solid; padding-left: .5rem; }
.bar { position: absolute; top: 0; bottom: 0; min-width: 3px; background: currentColor; opacity: .85; }
.bar:hover, .bar:focus { opacity: 1; outline: 2px solid var(--text); z-index: 1; }
.fused { color: var(--fused); } .op-by-op { color: var(--single); } .mixed { color: var(--mixed); }
.one-program { color: var(--one); } .not-needed { color: var(--none); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th:nth-child(2), th:nth-child(3), th:nth-child(6),
td:nth-child(2), td:nth-child(3), td:nth-child(6) { text-align: left; }
td { white-space: nowrap; } tfoot td { font-weight: bold; } tr:target { background: var(--soft); }
summary { cursor: pointer; } pre { text-align: left; margin: .3rem 0; }
#tip { position: fixed; max-width: 44rem; padding: .5rem .75rem; white-space: pre-wrap; background: var(--ground);
  border: 1px solid var(--quiet); border-radius: .4rem; font: .8rem/1.45 ui-monospace, monospace; z-index: 2;
  pointer-events: none; }
"""

_SCRIPT = """
const tip = document.getElementById("tip");
for (const bar of document.querySelectorAll(".bar")) {
  const text = bar.title;
  bar.removeAttribute("title");  // the browser's own tooltip would cover this one
  bar.setAttribute("aria-label", text);
  const show = () => {
    tip.textContent = text;
    tip.hidden = false;
    const at = bar.getBoundingClientRect();
    tip.style.left = Math.max(8, Math.min(at.left, innerWidth - tip.offsetWidth - 8)) + "px";
    tip.style.top = Math.min(at.bottom + 6, Math.max(8, innerHeight - tip.offsetHeight - 8)) + "px";
  };
  const hide = () => { tip.hidden = true; };
  bar.addEventListener("mouseenter", show);
  bar.addEventListener("focus", show);
  bar.addEventListener("mouseleave", hide);
  bar.addEventListener("blur", hide);
}
"""
