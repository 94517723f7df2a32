"""Judges every claim of the paper by the results in a directory: `python -m scripts.report DIR`.

Prints a line for each claim. If DIR is `results`, it also writes the tables of the READMEs; the same results give the
same bytes.
"""

from pathlib import Path

from experiments.core import console
from experiments.core.report.making import on_directory
from scripts.report import RESULTS, claims, readme


def make(directory: Path) -> None:
    """Prints the answers; for the committed results it also writes the tables of the READMEs."""
    findings = []
    for claim in claims.CLAIMS:
        findings.append(claim.find(directory))
        print(readme.claim_row(claim, findings[-1]), flush=True)
    if directory.resolve() == RESULTS:
        answers = readme.claims_table(claims.CLAIMS, findings)
        for changed in readme.update(directory, readme.blocks(directory) | {"claims": answers}):
            print(f"new tables in {changed}", flush=True)


if __name__ == "__main__":
    console.run(lambda arguments: on_directory("scripts.report", (__doc__ or "").split(":")[0], make, arguments))
