"""Trains all runs of a preset, makes table and figures: `python -m experiments.vmoe_clusters.suite --out=DIR`.

clusters  the runs of results/vmoe_clusters: score, lam and learning rate of every router are chosen on separate
          problems at one noise. Then every router trains at every noise on 20 other problems, and for longer at one
          noise, to see whether that changes the order
demo      three routers at one noise, nothing chosen; under a minute
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

from experiments.core import console
from experiments.core.suite import command
from experiments.core.suite.plan import Suite, SuiteRun
from experiments.vmoe_clusters import experiment, report
from experiments.vmoe_clusters.kinds import NAMES

Fields = dict[str, Any]

SWEEP_SEEDS = (100, 101, 102, 103)
FINAL_SEEDS = tuple(range(20))
NOISES = (0.1, 0.2, 0.3, 0.4)
NOISE_OF_CHOICE = 0.3
RATES = (1e-2, 3e-2, 1e-1, 3e-1)
RATE_OF_CHOICE = 3e-2  # score and lam are chosen at it, before the rate; longer runs train at it
LAMS = {
    "gates": (0.001, 0.01, 0.1, 1.0, 10.0),
    "logits": (0.1, 1.0, 10.0, 100.0),
}  # by score; lam = 0 is the hard router of that score
LONG = 4000  # steps of the longer runs, at the noise of choice
# A step of it takes tens of times as long as another router's, so it trains with the logits alone, and not for longer.
COSTLY = "balanced"

DEMO: Fields = {"steps": 200, "checkpoint_every": 200, "seeds": (0, 1, 2)}


def clusters() -> list[SuiteRun]:
    """Returns the sweeps on validation, then the final runs on test."""
    return [*_sweep(), *_final()]


def demo() -> list[SuiteRun]:
    """Returns three routers at the rates and lams of the config."""
    return [SuiteRun(f"final-{name}", DEMO, variant=f"router={name}") for name in ("best", "hard", "relaxed")]


def settings(name: str) -> Iterator[tuple[str, Fields]]:
    """Yields the settings that a router chooses from, each with the end of its run's name."""
    if name == "best":
        yield "", {}
    elif name == "hard":
        for score in LAMS:
            yield f"-{score}", {"router.score": score}
    else:
        for score in LAMS if name != COSTLY else ("logits",):
            for lam in LAMS[score]:
                # An annealed lam ends at a hundredth of its start.
                end = lam / 100 if name == "annealed" else lam
                fields: Fields = {"router.score": score, "router.lam.start": lam, "router.lam.end": end}
                yield f"-{score}-lam{lam:g}", fields


def _sweep() -> Iterator[SuiteRun]:
    base: Fields = {"split": "validation", "seeds": SWEEP_SEEDS, "task.noise": NOISE_OF_CHOICE}
    for name in NAMES:
        variant, at_one_rate = f"router={name}", f"{name}, at one rate"
        for end, fields in settings(name):
            setting: Fields = {"optimizer.learning_rate": RATE_OF_CHOICE} | fields
            yield SuiteRun(f"sweep/{name}{end}", base, setting, candidate_for=at_one_rate, variant=variant)
        for rate in RATES:
            if rate != RATE_OF_CHOICE:
                setting = {"optimizer.learning_rate": rate}
                run = f"sweep/{name}-lr{rate:g}"
                yield SuiteRun(run, base, setting, candidate_for=name, best_of=at_one_rate, variant=variant)


def _final() -> Iterator[SuiteRun]:
    base: Fields = {"split": "test", "seeds": FINAL_SEEDS}
    for noise, name in product(NOISES, NAMES):
        fields = base | {"task.noise": noise}
        yield SuiteRun(f"final-noise{noise:g}-{name}", fields, best_of=name, variant=f"router={name}")
    base |= {"task.noise": NOISE_OF_CHOICE, "steps": LONG, "checkpoint_every": LONG, "eval_every": LONG // 20}
    for name in NAMES:
        if name != COSTLY:
            # The best rates of short runs may be too large: at 0.1 the best assignment does not train.
            rate = {"optimizer.learning_rate": RATE_OF_CHOICE}
            yield SuiteRun(f"final-long-{name}", base, rate, best_of=name, variant=f"router={name}")


SUITE = Suite(
    recipe=experiment.RECIPE,
    presets={"clusters": clusters, "demo": demo},
    chosen_by="valid_loss",
    shown=("test_loss", "valid_loss"),
    report=report.make,
)

if __name__ == "__main__":
    console.run(lambda arguments: command.main(SUITE, arguments))
