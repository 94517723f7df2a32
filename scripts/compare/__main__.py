"""Compares runs: `python -m scripts.compare PLACE... [--out=DIR] [--format=html|text]`.

Each PLACE is a workdir, a directory with workdirs or archives at any depth, or the URL of one (gs://bucket/runs).
Writes DIR/index.html, which needs no network, or prints a table.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.core import console
from experiments.core.errors import in_one_line, printable
from experiments.core.record.files import write_atomically
from scripts.compare import text
from scripts.compare.contents import contents
from scripts.compare.groups import Group, group
from scripts.compare.page import page
from scripts.compare.workdirs import Found, find


def make(found: Found, groups: Sequence[Group], out: Path) -> Path:
    """Writes the page; returns its path."""
    summary = (
        f"<p>Runs: {len(found.runs)}, in groups: {len(groups)}. Runs whose configs differ in nothing but seeds, and "
        "fields that they do not read, are one group.</p>"
    )
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "index.html", page("Runs compared", contents(groups, found.problems), summary=summary))
    return out / "index.html"


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status: 1 if there is no run to show, 2 if it was called wrongly."""
    return in_one_line(lambda: _compare(arguments))


def _compare(arguments: Sequence[str]) -> int:
    description = (__doc__ or "").split(":")[0]
    parser = argparse.ArgumentParser(prog="python -m scripts.compare", description=description)
    parser.add_argument("places", nargs="+", metavar="PLACE", help="a workdir, a directory with some below, or a URL")
    parser.add_argument("--out", type=Path, default=Path("runs/compare"), help="where to write (default: %(default)s)")
    parser.add_argument("--format", choices=("html", "text"), default="html", help="a page, or a table in the terminal")
    parser.add_argument(
        "--reference", help="what the table subtracts: the label or name of a run (default: each one's baseline)"
    )
    options = parser.parse_args(arguments)
    found = find(options.places)
    groups = group(found)
    for problem in found.problems:
        print(f"left out: {problem.name}: {problem.reason}", file=sys.stderr)
    if not groups:
        print(printable("error: there is no run to compare in " + ", ".join(options.places)), file=sys.stderr)
        return 1
    if options.format == "text":
        print("\n".join(text.tables(groups, options.reference)))
        return 0
    path = make(found, groups, options.out)
    print(f"{len(found.runs)} runs in {len(groups)} groups: {path} ({path.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    console.run(main)
