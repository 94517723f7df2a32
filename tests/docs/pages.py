"""The sources of the documentation site, and where it is built."""

from pathlib import Path

from docs.including import WHOLE

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE = DOCS / "_build" / "html"
MADE = {DOCS / f"{page}.md" for page in WHOLE.values()}  # when the site is built
WRITTEN = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts and path not in MADE)
PAGES = sorted([*WRITTEN, *MADE])


def name_of(path: Path) -> str:
    """The name of a page in the site: its path without suffix."""
    return path.relative_to(DOCS).with_suffix("").as_posix()
