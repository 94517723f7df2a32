"""Trains all runs of a preset, makes the table: `python -m experiments.learned_masks.suite --out=DIR`.

masks  the head, then every method at every pattern; lam and the rate of what is learned are chosen on validation
"""

import itertools
from typing import Any, NamedTuple

from experiments.core import console
from experiments.core.suite import command
from experiments.core.suite.plan import Suite, SuiteRun
from experiments.learned_masks import experiment, report
from experiments.learned_masks.experiment import METHODS, PATTERNS

SWEEP_SEEDS, FINAL_SEEDS = (100,), (0, 1, 2, 3, 4)


class Grid(NamedTuple):
    """The learning rates of a method, and a field that is chosen with them."""

    rates: tuple[float, ...]
    field: str
    values: tuple[float, ...]


# Twelve settings for every method that learns; the rates of gates are higher.
_RATES, _LAMS = (3e-3, 1e-2, 3e-2), (0.3, 1.0, 3.0, 10.0)
GRIDS = {
    "relaxed": Grid(_RATES, "mask.lam.start", _LAMS),
    "learned": Grid(_RATES, "mask.lam.start", _LAMS),
    # Under Adam another scale of the first scores is another rate.
    "edge_popup": Grid(_RATES, "optimizer.momentum", (0.0, 0.5, 0.9, 0.95)),
    "gumbel": Grid((3e-2, 1e-1, 3e-1), "mask.temperature", (0.1, 0.3, 2 / 3, 1.5)),
}
CHOSEN_AT = "fifth"  # the pattern of the choice
AT_CHOICE_ALONE = ("edge_popup",)  # methods whose other patterns were not trained


def masks() -> list[SuiteRun]:
    """Returns the heads, the candidates on validation, and the final runs on test."""
    runs = [SuiteRun(f"head-{split}", {"split": split}, variant="method=dense") for split in ("validation", "test")]
    base: dict[str, Any] = {"split": "validation", "seeds": SWEEP_SEEDS}
    for method, (rates, field, values) in GRIDS.items():
        variant = f"method={method},pattern={CHOSEN_AT}"
        for rate, value in itertools.product(rates, values):
            setting = {"optimizer.learning_rate": rate, field: value}
            name = f"sweep/{method}-lr{rate:g}-{field.split('.')[1]}{value:.2g}"
            runs.append(SuiteRun(name, base, setting, method, variant=variant, weights_of="head-validation"))
    for pattern in PATTERNS:
        left_out = () if pattern == CHOSEN_AT else AT_CHOICE_ALONE
        for method in (name for name in list(METHODS)[1:] if name not in left_out):
            learned = method in GRIDS
            fields = {"split": "test", "seeds": FINAL_SEEDS if learned else FINAL_SEEDS[:1]}
            name, variant = f"final-{pattern.replace(':', 'of')}-{method}", f"method={method},pattern={pattern}"
            best = method if learned else None
            runs.append(SuiteRun(name, fields, best_of=best, variant=variant, weights_of="head-test"))
    return runs


SUITE = Suite(
    recipe=experiment.RECIPE,
    presets={"masks": masks},
    chosen_by="valid_loss",
    shown=("test_accuracy", "test_accuracy_norms", "test_accuracy_head", "valid_accuracy"),
    report=report.make,
)

if __name__ == "__main__":
    console.run(lambda arguments: command.main(SUITE, arguments))
