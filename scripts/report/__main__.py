"""Judges every claim of the paper by the results in a directory: `python -m scripts.report DIR`.

Prints a line a claim and writes DIR/index.html, which needs no network and no JavaScript; its links lead to files
beside it. The same results give the same bytes. Where DIR is `results`, the tables of the READMEs are made again, too.
"""

from collections.abc import Sequence
from pathlib import Path

from experiments.core import console
from experiments.core.record.files import write_atomically
from experiments.core.report.making import on_directory
from scripts.report import RESULTS, claims, readme
from scripts.report.page import page


def make(directory: Path) -> Path:
    """Writes the page; returns its path."""
    findings = []
    for claim in claims.CLAIMS:
        findings.append(claim.find(directory))
        print(readme.claim_row(claim, findings[-1]), flush=True)
    path = directory / "index.html"
    write_atomically(path, page(claims.CLAIMS, findings, directory))
    if directory.resolve() == RESULTS:
        made = readme.blocks(directory) | {"claims": readme.claims_table(claims.CLAIMS, findings)}
        for changed in readme.update(directory, made):
            print(f"the tables of {changed} are new", flush=True)
    return path


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns its exit status."""

    def work(directory: Path) -> None:
        path = make(directory)
        print(f"the page is {path} ({path.stat().st_size / 1e6:.1f} MB)")

    return on_directory("scripts.report", (__doc__ or "").split(":")[0], work, arguments)


if __name__ == "__main__":
    console.run(main)
