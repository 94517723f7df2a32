"""Trains all runs of a preset, makes table and figures: `python -m experiments.mnist_pruning.suite --out=DIR`."""

from experiments.core import console
from experiments.core.suite import command
from experiments.core.suite.plan import Suite, SuiteRun
from experiments.mnist_pruning import experiment, report
from experiments.mnist_pruning.suite.best import VIT
from experiments.mnist_pruning.suite.presets import PRESETS

# Seconds per epoch of ten seeds, relative to the other methods; others take 4.
_COSTS = {
    **{"dense": 0.6, "hard": 1.6, "relaxed": 3.4, "ot_straight_through": 10.0, "hard_concrete": 3.0, "ista": 1.6},
    **{"identity_straight_through": 1.6, "gradual": 1.0, "movement": 1.6, "rigl": 1.0, "topkast": 2.5, "str": 0.8},
}


def _cost(run: SuiteRun) -> float:
    if run.variant == VIT:  # seconds, of compilation and evaluation, then of images, whatever the method
        return 15.0 + 6.0 * len(run.base["seeds"]) + 0.03 * run.base["steps"] * len(run.base["seeds"])
    # Seeds train side by side: ten take about three times as long as one.
    return 5.0 + _COSTS.get(run.base["method"], 4.0) * run.base["epochs"] * (3 + len(run.base["seeds"])) / 13


SUITE = Suite(
    name="mnist_pruning",
    load=lambda: experiment.RECIPE,
    presets=PRESETS,
    chosen_by="hardened_error",
    shown=("test_error", "valid_error", "hardened_error"),
    if_diverged=100.0,  # % of error: behind whatever ends
    cost=_cost,
    report=report.make,
)

if __name__ == "__main__":
    console.run(lambda arguments: command.main(SUITE, arguments))
