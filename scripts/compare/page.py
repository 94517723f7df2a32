"""Writes a page as one HTML file that contains data, code, style and Plotly."""

import html
import json
from pathlib import Path
from typing import Any

import plotly

_ASSETS = Path(__file__).parent / "assets"
_SCRIPTS = ("common", "statistics", "tables", "curves", "start")
_PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


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
        "PLOTLY": _PLOTLY.read_text(encoding="utf-8"),
        "SCRIPT": "\n".join((_ASSETS / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS),
    }
    pieces = (_ASSETS / "page.html").read_text(encoding="utf-8").split("@@")
    return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))
