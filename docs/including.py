"""What becomes of a text of the repository on a page of the site."""

import os
import posixpath
from pathlib import Path

# Files of the repository that are pages here, too: links to them lead to these pages, links to others to a copy.
PAGES = {
    "README.md": "index",
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contributing",
    "ops/README.md": "choosing",
    "scripts/launch/README.md": "how_to/launch",
    "results/README.md": "results/index",
    "results/bench/README.md": "results/benchmarks",
}
# Those that are such a page as they are: `conf.py` writes a page that includes the file and nothing else.
RESULTS = Path(__file__).parents[1] / "results"
WHOLE = {
    "results/chaos/README.md": "results/chaos",
    "results/figures/captions.md": "results/figures",
    "results/networks/README.md": "results/networks",
}
for _table in sorted(RESULTS.glob("*/table.md")):
    _name = f"results/{_table.parent.name}"
    WHOLE |= {f"{_name}/README.md": _name, f"{_name}/table.md": f"{_name}_table"}
PAGES |= WHOLE
# Parts of these files that are on pages of their own.
PARTS = {
    "map": "repository",
    "what-does-not-hold-as-the-paper-states-it": "deviations",
    "speed-of-the-solvers": "results/benchmarks",
    "several-slices-several-machines": "how_to/launch",
    "from-the-paper-to-functions-and-tests": "paper",
}


def page_of(path: str) -> str:
    """The text of the page of a file in `WHOLE`: below the README of runs is the page of their table."""
    included = f"```{{include}} ../../{path}\n```\n"
    directory = Path(path).parent
    if path.endswith("table.md"):
        title = (RESULTS / directory.name / "README.md").read_text().partition("\n")[0]
        return f"{title}: all runs\n\n{included}"
    if f"{directory.as_posix()}/table.md" in WHOLE:
        return f"{included}\n```{{toctree}}\n:hidden:\n\n{directory.name}_table\n```\n"
    return included


def link_from(path: Path, link: str, page: Path) -> str:
    """What a link in a file becomes on a page that includes the file; all paths are relative to the repository."""
    target, _, part = link.partition("#")
    if "://" in link or not target:
        return link
    name = posixpath.normpath((path.parent / target).as_posix())
    if f"{name}/README.md" in PAGES:
        name = f"{name}/README.md"
    if name in PAGES:
        return f"/{PARTS.get(part, PAGES[name])}.md" + (f"#{part}" if part else "")
    return Path(os.path.relpath(name, page.parent)).as_posix()
