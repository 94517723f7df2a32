"""Makes the page of the committed results: `python -m scripts.report DIR`.

DIR/index.html opens with every claim of the paper beside what the results say, and goes on as the pages of
`scripts.compare` do, with all runs below DIR. It needs no network; its links lead to files beside it. The same results
give the same bytes. Where DIR is `results`, the tables that the READMEs show of it are made again, too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from etils import epy

from experiments.core import console
from experiments.core.record.files import write_atomically
from experiments.core.report.command import on_directory
from scripts.compare.contents import contents
from scripts.compare.groups import group
from scripts.compare.page import listed, page
from scripts.compare.workdirs import RESULTS, find
from scripts.report.cards import cards
from scripts.report.paper import REPORTED

with epy.lazy_imports():  # --help does without them
    from scripts.aot import tables as accelerators
    from scripts.report import claims, readme

_SUMMARY = (
    "<p><cite>Fast, Differentiable and Sparse Top-k: a Convex Analysis Perspective</cite> (Sander, Puigcerver, "
    "Djolonga, Peyré and Blondel, ICML 2023): what it claims, what the results in this directory say, and the runs "
    "behind them.</p>"
)

_ACCELERATORS = (
    "<p>What the compilers of TPUs and GPUs say of the operators and of full-size training steps, computed and not "
    'measured: <a href="accelerators/README.md">accelerators</a>.</p>'
)


def make(directory: Path) -> Path:
    """Writes the page; returns its path."""
    findings = []
    for claim in claims.CLAIMS:
        findings.append(claim.find(directory))
        print(readme.claim_row(claim, findings[-1]), flush=True)
    found = find([str(directory)])
    for problem in found.problems:
        print(f"left out: {problem.name}: {problem.reason}", file=sys.stderr)
    figures = sorted(
        path.relative_to(directory) for path in directory.glob("**/figures/*.*") if path.suffix in (".png", ".svg")
    )
    path = directory / "index.html"
    data = contents(group(found), found.problems, REPORTED)
    before, after = cards(claims.CLAIMS, findings, directory), listed("Figures", figures)
    if (directory / "accelerators" / "README.md").exists():
        before += _ACCELERATORS
    write_atomically(path, page("Claims and results", data, summary=_SUMMARY, before=before, after=after))
    if directory.resolve() == RESULTS:
        accelerators.write(directory / "accelerators")
        for changed in readme.update(claims.CLAIMS, findings):
            print(f"the tables of {changed} are new", flush=True)
    return path


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""

    def work(directory: Path) -> int:
        path = make(directory)
        print(f"the page is {path} ({path.stat().st_size / 1e6:.1f} MB)")
        return 0

    return on_directory("scripts.report", __doc__, work, arguments)


if __name__ == "__main__":
    console.run(main)
