"""The sources of the documentation site, and where it is built."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE = DOCS / "_build" / "html"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
TUTORIALS = [path for path in PAGES if path.parent.name == "tutorials" and path.stem != "index"]

_FENCE = re.compile(r"^(`{3,}|:{3,})\{([\w-]+)\}[^\n]*\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)


def directives(text: str, name: str) -> list[str]:
    """The bodies of all directives of this name, options included."""
    return [body for _, found, body in _FENCE.findall(text) if found == name]


def name_of(path: Path) -> str:
    """The name of a page in the site: its path without suffix."""
    return path.relative_to(DOCS).with_suffix("").as_posix()
