"""A report as a whole: a page, or a part of a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from torus.explain.report.markup import escape
from torus.explain.report.panels import heading, panels

THEMES = ("auto", "light", "dark")


def page(result: Any, *, title: str | None = None, names: Sequence[str] | None = None, theme: str = "auto") -> str:
    """One HTML file: no script, no font, no image beside it.

    title: of the page; names: of the features of a table; theme: of `THEMES`, "auto" is the reader's own.
    """
    shown, body = escape(title or heading(result)), fragment(result, title=title, names=names, theme=theme)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{shown}</title></head>\n<body>{body}</body></html>\n"
    )


def fragment(result: Any, *, title: str | None = None, names: Sequence[str] | None = None, theme: str = "auto") -> str:
    """The same inside of another page: every rule of its style is about its own elements alone."""
    if theme not in THEMES:
        raise ValueError(f"there is no theme {theme!r}; there are {', '.join(THEMES)}")
    body = "\n".join(panels(result, names))
    return (
        f"<style>\n{_style()}</style>\n"
        f'<main class="torus-explain {theme}">\n<header><h1>{escape(title or heading(result))}</h1>'
        f"<p>{_subtitle(result)}</p></header>\n{body}\n</main>"
    )


def _subtitle(result: Any) -> str:
    """How it was found."""
    certificate = getattr(result, "certificate", None) or result.certificates[0]
    replaced = getattr(result, "replacement", "")
    what = f"; <b>{escape(replaced.strip() or repr(replaced))}</b> stands for what is left out" if replaced else ""
    return f"by <b>{escape(certificate.method.replace('_', ' '))}</b> on {escape(certificate.device)}{what}"


def _style() -> str:
    return (files("torus.explain.report") / "style.css").read_text(encoding="utf-8")
