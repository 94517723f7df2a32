"""Trains all runs of a preset, makes table and figures: `python -m experiments.mnist_pruning.suite --out=DIR`."""

from experiments.core import console
from experiments.core.suite import command
from experiments.core.suite.plan import Suite
from experiments.mnist_pruning import experiment, report
from experiments.mnist_pruning.suite.presets import PRESETS

SUITE = Suite(
    recipe=experiment.RECIPE,
    presets=PRESETS,
    chosen_by="hardened_error",
    shown=("test_error", "valid_error", "hardened_error"),
    report=report.make,
)

if __name__ == "__main__":
    console.run(lambda arguments: command.main(SUITE, arguments))
