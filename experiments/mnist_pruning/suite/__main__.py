"""Trains all runs of a preset, makes table and figures: `python -m experiments.mnist_pruning.suite --out=DIR`."""

from etils import epy

from experiments.core import console
from experiments.core.suite import command
from experiments.core.suite.plan import Suite, SuiteRun
from experiments.mnist_pruning.methods import METHODS
from experiments.mnist_pruning.suite import vit
from experiments.mnist_pruning.suite.presets import PRESETS

with epy.lazy_imports():  # --help does without them
    from experiments.mnist_pruning import experiment
    from experiments.mnist_pruning.report import figures, table


def _cost(run: SuiteRun) -> float:
    if run.variant == vit.VARIANT:  # seconds, of compilation and evaluation, then of images, whatever the method
        return 15.0 + 6.0 * len(run.base["seeds"]) + 0.03 * run.base["steps"] * len(run.base["seeds"])
    # Seeds train side by side: ten take about three times as long as one.
    return 5.0 + METHODS[run.base["method"]].cost * run.base["epochs"] * (3 + len(run.base["seeds"])) / 13


SUITE = Suite(
    name="mnist_pruning",
    load=lambda: experiment.RECIPE,
    presets=PRESETS,
    chosen_by="hardened_error",
    shown=("test_error", "valid_error", "hardened_error"),
    if_diverged=100.0,  # % of error: behind whatever ends
    cost=_cost,
    report=lambda out: table.make(out) + figures.make(out),
)

if __name__ == "__main__":
    console.run(lambda arguments: command.main(SUITE, arguments))
