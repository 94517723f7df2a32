"""Trains all runs of a preset, makes table and figures: `python -m experiments.vmoe_clusters.suite --out=DIR`."""

from etils import epy

from experiments.core import console
from experiments.core.suite import command
from experiments.core.suite.plan import Suite, SuiteRun
from experiments.vmoe_clusters.suite.presets import PRESETS

with epy.lazy_imports():  # --help does without them
    from experiments.vmoe_clusters import experiment
    from experiments.vmoe_clusters.report import figures, table


def _cost(run: SuiteRun) -> float:
    # Seconds of a CPU core: compilation, then thousands of steps of every seed; a plan takes longer than a mask.
    thousands = run.base.get("steps", 1000) / 1000
    return 8.0 + thousands * len(run.base["seeds"]) * (28.0 if run.variant == "router=balanced" else 1.0)


SUITE = Suite(
    name="vmoe_clusters",
    load=lambda: experiment.RECIPE,
    presets=PRESETS,
    chosen_by="valid_loss",
    shown=("test_loss", "valid_loss"),
    if_diverged=100.0,
    cost=_cost,
    report=lambda out: table.make(out) + figures.make(out),
)

if __name__ == "__main__":
    console.run(lambda arguments: command.main(SUITE, arguments))
