"""Trains all runs of a preset, makes table and figures: `python -m experiments.cifar100_vit.suite --out=DIR`."""

from etils import epy

from experiments.cifar100_vit.suite.presets import PRESETS, PRETRAIN
from experiments.core import console
from experiments.core.suite import command
from experiments.core.suite.plan import Suite, SuiteRun

with epy.lazy_imports():  # --help does without them
    from experiments.cifar100_vit import experiment
    from experiments.cifar100_vit.report import figures, table


def _cost(run: SuiteRun) -> float:
    # Seconds on 2 CPU cores: compilation and evaluation, then images.
    if run.name == PRETRAIN:
        return 900.0
    if run.variant.startswith("last_block"):
        return 150.0 * len(run.base["seeds"])
    if run.variant.startswith("features"):
        steps = int(run.variant.partition("steps=")[2] or 100)
        return 3.0 + (0.5 + 0.003 * steps) * len(run.base["seeds"])
    return 12.0 + 24.0 * len(run.base["seeds"])


SUITE = Suite(
    name="cifar100_vit",
    load=lambda: experiment.RECIPE,
    presets=PRESETS,
    chosen_by="mean_topk_error",
    shown=("test_accuracy/1", "test_accuracy/3", "valid_accuracy/1", "valid_accuracy/3", "mean_topk_error"),
    if_diverged=100.0,
    cost=_cost,
    report=lambda out: table.make(out) + figures.make(out),
)

if __name__ == "__main__":
    console.run(lambda arguments: command.main(SUITE, arguments))
