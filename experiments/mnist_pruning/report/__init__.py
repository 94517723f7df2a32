"""The report of the pruning experiment: tables, figures, and our answers to the paper's claims.

`python -m experiments.mnist_pruning.report DIR` makes tables and figures of the runs below DIR.
"""

import functools

from experiments.core.report import making
from experiments.mnist_pruning.report.claims import accuracy, density, optimal_transport, speed
from experiments.mnist_pruning.report.drawing import figures
from experiments.mnist_pruning.report.rows import blocks, paper_rows, tables
from experiments.mnist_pruning.report.runs import PRESENTATION, sections

__all__ = [
    "PRESENTATION",
    "accuracy",
    "blocks",
    "density",
    "figures",
    "make",
    "optimal_transport",
    "paper_rows",
    "sections",
    "speed",
    "tables",
]

make = functools.partial(making.make, PRESENTATION, tables, figures)  # takes the directory of the runs
