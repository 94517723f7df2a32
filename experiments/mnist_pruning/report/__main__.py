"""The command `python -m experiments.mnist_pruning.report DIR`."""

from experiments.core import console
from experiments.core.report import making
from experiments.mnist_pruning import report

if __name__ == "__main__":
    console.run(lambda given: making.on_directory("experiments.mnist_pruning.report", making.DOC, report.make, given))
