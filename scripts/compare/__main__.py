"""Puts runs side by side: `python -m scripts.compare PLACE... [--out=DIR] [--format=html|text]`.

Each PLACE is a workdir, a directory with workdirs at any depth, or the URL of one (gs://bucket/runs). Writes
DIR/index.html, which needs no network, and every plot in it to DIR/plots as PNG and SVG; or prints a table.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.core.errors import in_one_line
from experiments.core.record.files import write_atomically
from scripts.compare import plots, text
from scripts.compare.contents import contents
from scripts.compare.groups import Group, group
from scripts.compare.page import listed, page
from scripts.compare.workdirs import Found, find
from scripts.report.paper import REPORTED


def make(found: Found, groups: Sequence[Group], out: Path, *, figures: bool = True) -> list[Path]:
    """Writes the page and the plots; returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    if figures:
        print(f"drawing the plots of {len(groups)} groups", file=sys.stderr, flush=True)
    written = plots.make(groups, out / "plots", REPORTED) if figures else []
    problems = len(found.problems)
    summary = (
        f"<p>{_counted(len(found.runs), 'run')} in {_counted(len(groups), 'group')}: runs whose configs differ in "
        "their seeds alone are one group, named by the fields in which groups differ; a value that most of many groups "
        "share goes without saying. "
    )
    summary += f'<a href="#problems">{problems} left out</a>.</p>' if problems else "Nothing was left out.</p>"
    after = listed("Plots as files", [path.relative_to(out) for path in written])
    path = out / "index.html"
    write_atomically(
        path, page("Runs compared", contents(groups, found.problems, REPORTED), summary=summary, after=after)
    )
    return [path, *written]


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status: 1 if there is no run to show, 2 if it was called wrongly."""
    return in_one_line(lambda: _compare(arguments))


def _compare(arguments: Sequence[str]) -> int:
    description = (__doc__ or "").split(":")[0]
    parser = argparse.ArgumentParser(prog="python -m scripts.compare", description=description)
    parser.add_argument("places", nargs="+", metavar="PLACE", help="a workdir, a directory with some below, or a URL")
    parser.add_argument("--out", type=Path, default=Path("runs/compare"), help="where to write (default: %(default)s)")
    parser.add_argument("--format", choices=("html", "text"), default="html", help="a page, or a table in the terminal")
    parser.add_argument("--no_figures", action="store_true", help="the page alone, without PNG and SVG files")
    parser.add_argument("--metric", help="of the text table (default: the first that is measured)")
    parser.add_argument("--reference", help="of its differences: part of a label or name (default: the first row)")
    options = parser.parse_args(arguments)
    found = find(options.places)
    groups = group(found)
    for problem in found.problems:
        print(f"left out: {problem.name}: {problem.reason}", file=sys.stderr)
    for run in found.runs:
        if run.reason:
            print(f"{run.name}: {run.state}: {run.reason}", file=sys.stderr)
    if not groups:
        print("error: there is no run to compare in " + ", ".join(options.places), file=sys.stderr)
        return 1
    if options.format == "text":
        print("\n".join(text.tables(groups, options.metric, options.reference)))
        return 0
    written = make(found, groups, options.out, figures=not options.no_figures)
    print(f"{len(found.runs)} runs in {len(groups)} groups: {written[0]} ({written[0].stat().st_size / 1e6:.1f} MB)")
    if written[1:]:
        print(f"their plots: {written[1].parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
