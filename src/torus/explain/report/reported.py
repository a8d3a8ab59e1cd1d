"""What every result can show of itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class Reported:
    """A result with a report; what it shows is in `torus.explain.report.panels` and `figure`."""

    def to_html(self, *, title: str | None = None, names: Sequence[str] | None = None, theme: str = "auto") -> str:
        """The report as one HTML page that needs nothing else.

        title: of the page. names: of the features of a table. theme: "light", "dark", or "auto" for the reader's own.
        """
        from torus.explain.report.page import page

        return page(self, title=title, names=names, theme=theme)

    def save(
        self,
        path: str | Path,
        *,
        title: str | None = None,
        names: Sequence[str] | None = None,
        theme: str = "auto",
    ) -> Path:
        """Write the report as ``.html``, or a picture as ``.svg`` or ``.png`` (with matplotlib). Returns the path.

        Raises ValueError for any other kind of file.
        """
        from torus.explain.report.figure import figure
        from torus.explain.report.raster import write_png

        path = Path(path)
        kind = path.suffix.lower()
        if kind in (".html", ".htm"):
            path.write_text(self.to_html(title=title, names=names, theme=theme), encoding="utf-8")
        elif kind == ".svg":
            path.write_text(figure(self, title=title, names=names).svg("#ffffff"), encoding="utf-8")
        elif kind == ".png":
            write_png(figure(self, title=title, names=names), path)
        else:
            raise ValueError(f"{path.name} is neither .html, .svg nor .png")
        return path

    def _repr_html_(self) -> str:
        """For notebooks."""
        from torus.explain.report.page import fragment

        return fragment(self)
