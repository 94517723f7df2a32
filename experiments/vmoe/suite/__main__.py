"""Trains all runs of a preset, makes table and figures: `python -m experiments.vmoe.suite --out=DIR`."""

from etils import epy

from experiments.core import console
from experiments.core.suite import command
from experiments.core.suite.plan import Suite, SuiteRun
from experiments.vmoe.suite.presets import PRESETS

with epy.lazy_imports():  # --help does without them
    from experiments.vmoe import experiment
    from experiments.vmoe.report import figures, pictures, table


def _cost(run: SuiteRun) -> float:
    # Seconds on 2 CPU cores: compilation, then steps of every seed.
    if run.variant.startswith("tokens"):
        return 8.0 + 24.0 * len(run.base["seeds"]) * run.base.get("steps", 800) / 800
    return 20.0 + 60.0 * len(run.base.get("seeds", (0,)))


SUITE = Suite(
    name="vmoe",
    load=lambda: experiment.RECIPE,
    presets=PRESETS,
    chosen_by="valid_error",
    shown=("test_precision_at_1", "valid_precision_at_1"),
    if_diverged=100.0,
    cost=_cost,
    report=lambda out: table.make(out) + pictures.keep(out) + figures.make(out),
)

if __name__ == "__main__":
    console.run(lambda arguments: command.main(SUITE, arguments))
