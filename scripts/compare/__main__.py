"""Puts runs side by side: `python -m scripts.compare PLACE... [--out=DIR] [--format=html|text] [--watch]`.

Each PLACE is a workdir, a directory with workdirs at any depth, or the URL of one (gs://bucket/runs). Writes
DIR/index.html, which needs no network, and every plot in it to DIR/plots as PNG and SVG; or prints a table; or serves
the page on this machine and follows runs that go on, until Ctrl-C.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.core import console
from experiments.core.errors import UsageError, in_one_line, printable
from experiments.core.record.files import write_atomically
from scripts.compare import plots, text, watch
from scripts.compare.comparison import comparison
from scripts.compare.groups import Group, group
from scripts.compare.page import listed
from scripts.compare.workdirs import Found, find
from scripts.report.paper import REPORTED


def make(found: Found, groups: Sequence[Group], out: Path, *, figures: bool = True) -> list[Path]:
    """Writes the page and the plots; returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    if figures:
        print(f"drawing the plots of {len(groups)} groups", file=sys.stderr, flush=True)
    written = plots.make(groups, out / "plots", REPORTED) if figures else []
    after = listed("Plots as files", [path.relative_to(out) for path in written])
    path = out / "index.html"
    write_atomically(path, comparison(found, groups, after=after))
    return [path, *written]


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
        "--watch", action="store_true", help="serve the page on this machine, and follow runs that go on"
    )
    parser.add_argument("--port", type=int, default=0, help="of --watch (default: any that is free)")
    parser.add_argument("--no_figures", action="store_true", help="the page alone, without PNG and SVG files")
    parser.add_argument("--metric", help="of the text table (default: the first that is measured)")
    parser.add_argument(
        "--reference",
        help="of its differences: a label or name, or a part of one alone (default: the experiment's baseline, in the "
        "circumstances of the first row that has one; else the first row)",
    )
    options = parser.parse_args(arguments)
    if options.watch:
        return _watch(options.places, options.port)
    found = find(options.places)
    groups = group(found)
    for problem in found.problems:
        print(f"left out: {problem.name}: {problem.reason}", file=sys.stderr)
    for run in found.runs:
        if run.reason:
            print(printable(f"{run.name}: {run.state}: {run.reason}"), file=sys.stderr)
    if not groups:
        print(printable("error: there is no run to compare in " + ", ".join(options.places)), file=sys.stderr)
        return 1
    if options.format == "text":
        print("\n".join(text.tables(groups, options.metric, options.reference)))
        return 0
    written = make(found, groups, options.out, figures=not options.no_figures)
    print(f"{len(found.runs)} runs in {len(groups)} groups: {written[0]} ({written[0].stat().st_size / 1e6:.1f} MB)")
    if written[1:]:
        print(f"their plots: {written[1].parent}")
    return 0


def _watch(places: Sequence[str], port: int) -> int:
    try:
        site = watch.Site(port)
    except (OSError, OverflowError) as error:
        raise UsageError(f"--port={port} cannot be listened at ({error}): it must be one that is free") from error
    return watch.follow(places, site)


if __name__ == "__main__":
    console.run(main)
