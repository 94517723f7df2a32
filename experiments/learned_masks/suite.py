"""Trains all runs of a preset, makes the table: `python -m experiments.learned_masks.suite --out=DIR`.

masks  the head, then every method at every pattern; lam and the rate of what is learned are chosen on validation
"""

from typing import Any

from experiments.core import console
from experiments.core.suite import command
from experiments.core.suite.plan import Suite, SuiteRun
from experiments.learned_masks import experiment, report
from experiments.learned_masks.experiment import METHODS, PATTERNS

SWEEP_SEEDS, FINAL_SEEDS = (100,), (0, 1, 2)
RATES = (1e-2, 3e-2, 1e-1)
SETTINGS: dict[str, tuple[dict[str, Any], ...]] = {  # what is chosen beside the rate
    "relaxed": ({"mask.lam.start": 0.3}, {"mask.lam.start": 1.0}),
    "learned": ({"mask.lam.start": 0.3}, {"mask.lam.start": 1.0}, {"mask.lam.start": 3.0}),
    "gumbel": ({"mask.temperature": 0.3}, {"mask.temperature": 2 / 3}),
}
CHOSEN_AT = "fifth"  # the pattern of the choice


def masks() -> list[SuiteRun]:
    """Returns the heads, the candidates on validation, and the final runs on test."""
    runs = [SuiteRun(f"head-{split}", {"split": split}, variant="method=dense") for split in ("validation", "test")]
    base: dict[str, Any] = {"split": "validation", "seeds": SWEEP_SEEDS}
    for method, settings in SETTINGS.items():
        for number, fields in enumerate(settings):
            for rate in RATES:
                setting = {"optimizer.learning_rate": rate} | fields
                name, variant = f"sweep/{method}-{number}-lr{rate:g}", f"method={method},pattern={CHOSEN_AT}"
                run = SuiteRun(name, base, setting, method, variant=variant, weights_of="head-validation")
                runs.append(run)
    for pattern in PATTERNS:
        for method in list(METHODS)[1:]:
            learned = method in SETTINGS
            fields = {"split": "test", "seeds": FINAL_SEEDS if learned else FINAL_SEEDS[:1]}
            name, variant = f"final-{pattern.replace(':', 'of')}-{method}", f"method={method},pattern={pattern}"
            best = method if learned else None
            runs.append(SuiteRun(name, fields, best_of=best, variant=variant, weights_of="head-test"))
    return runs


SUITE = Suite(
    recipe=experiment.RECIPE,
    presets={"masks": masks},
    chosen_by="valid_loss",
    shown=("test_accuracy", "valid_accuracy"),
    report=report.make,
)

if __name__ == "__main__":
    console.run(lambda arguments: command.main(SUITE, arguments))
