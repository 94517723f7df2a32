"""One HTML file that needs nothing else: data, code, style and Plotly inside."""

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import plotly

_ASSETS = Path(__file__).parent / "assets"
_SCRIPTS = (
    *("page", "tables", "curves", "finals", "scatter", "parallel", "pictures", "configs", "runs"),
    *("state", "follow", "start"),
)
_PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


def page(title: str, data: dict[str, Any], *, summary: str, before: str = "", after: str = "") -> str:
    """The page.

    Args:
      title: text.
      data: of `contents`.
      summary: HTML of what is compared.
      before: HTML of the sections before the curves.
      after: HTML of the sections after all others.

    A page whose data have a `version` is served, and asks its server for a newer one; any other asks for nothing.
    """
    parts = {
        "TITLE": html.escape(title),
        "CONNECT": " connect-src 'self';" if "version" in data else "",
        "SUMMARY": summary,
        "BEFORE": before,
        "AFTER": after,
        "STYLE": (_ASSETS / "page.css").read_text(encoding="utf-8"),
        # No name or message of a run may end the element that the data are in.
        "DATA": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        "PLOTLY": _PLOTLY.read_text(encoding="utf-8"),
        "SCRIPT": "\n".join((_ASSETS / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS),
    }
    pieces = (_ASSETS / "page.html").read_text(encoding="utf-8").split("@@")
    return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def listed(title: str, files: Sequence[Path]) -> str:
    """HTML of a section with links to files beside the page, those that differ in their suffix on one line."""
    if not files:
        return ""
    stems: dict[Path, list[str]] = {}
    for file in files:
        link = f'<a href="{html.escape(quote(file.as_posix()))}">{file.suffix[1:].upper()}</a>'
        stems.setdefault(file.with_suffix(""), []).append(link)
    items = (f"<li>{html.escape(stem.name)}: {' '.join(links)}</li>" for stem, links in stems.items())
    return f'<section id="files"><h2>{html.escape(title)}</h2><ul>{"".join(items)}</ul></section>'
