"""Writes a page as one HTML file that contains data, code, style, and D3 and Observable Plot, which draw its plot."""

import html
import json
from pathlib import Path
from typing import Any

_ASSETS = Path(__file__).parent / "assets"
_SCRIPTS = ("common", "statistics", "tables", "curves", "start")
# From npm, unchanged: d3 7.9.2 and @observablehq/plot 0.6.17 (its plot.umd.min.js).
_PLOT = [_ASSETS / "vendor" / name for name in ("d3.min.js", "plot.min.js")]


def page(title: str, data: dict[str, Any], *, summary: str, before: str = "") -> str:
    """Returns the HTML of a page.

    Args:
      title: its title, as text.
      data: the data, made by `contents`.
      summary: HTML that says what is compared.
      before: HTML of the sections before the curves.
    """
    parts = {
        "TITLE": html.escape(title),
        "SUMMARY": summary,
        "BEFORE": before,
        "STYLE": (_ASSETS / "page.css").read_text(encoding="utf-8"),
        # No name or message in the data may end their element.
        "DATA": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        "LICENCE": (_ASSETS / "vendor" / "LICENSE").read_text(encoding="utf-8"),
        "PLOT": "\n".join(path.read_text(encoding="utf-8") for path in _PLOT),
        "SCRIPT": "\n".join((_ASSETS / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS),
    }
    pieces = (_ASSETS / "page.html").read_text(encoding="utf-8").split("@@")
    return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))
