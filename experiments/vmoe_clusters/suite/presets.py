"""The suites on offer, as lists of runs.

clusters  what results/vmoe_clusters holds: learning rate and lam of every router chosen on problems of their own at one
          noise, then every router at every noise on 20 others
demo      three routers at one noise, nothing chosen; under a minute
"""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from experiments.core.suite.plan import SuiteRun
from experiments.vmoe_clusters.kinds import NAMES

Fields = dict[str, Any]

SWEEP_SEEDS = (100, 101, 102, 103)
FINAL_SEEDS = tuple(range(20))
NOISES = (0.1, 0.2, 0.3, 0.4)
NOISE_OF_CHOICE = 0.3
RATES = (1e-2, 3e-2, 1e-1)
LAMS = (0.1, 1.0, 10.0)
SCORES = ("gates", "logits")  # of the hard router, which has no lam

DEMO: Fields = {"steps": 200, "checkpoint_every": 200, "seeds": (0, 1, 2)}


def clusters() -> list[SuiteRun]:
    """The sweeps on validation, then the final runs on test."""
    return [*_sweep(), *_final()]


def demo() -> list[SuiteRun]:
    """At the rates and lams of the config."""
    return [SuiteRun(f"final-{name}", DEMO, variant=f"router={name}") for name in ("best", "hard", "relaxed")]


PRESETS: dict[str, Callable[[], list[SuiteRun]]] = {"clusters": clusters, "demo": demo}


def settings(name: str) -> Iterator[tuple[str, Fields]]:
    """What a router can be chosen to have besides a learning rate, each under the end of a run's name."""
    if name == "best":
        yield "", {}
    elif name == "hard":
        for score in SCORES:
            yield f"-{score}", {"router.score": score}
    else:
        for lam in LAMS:
            # Where lam falls, to a hundredth of this.
            end = lam / 100 if name == "annealed" else lam
            yield f"-lam{lam:g}", {"router.lam.start": lam, "router.lam.end": end}


def _sweep() -> Iterator[SuiteRun]:
    base: Fields = {"split": "validation", "seeds": SWEEP_SEEDS, "task.noise": NOISE_OF_CHOICE}
    for name in NAMES:
        for rate, (end, fields) in product(RATES, settings(name)):
            setting: Fields = {"optimizer.learning_rate": rate} | fields
            run = f"sweep/{name}-lr{rate:g}{end}"
            yield SuiteRun(run, base, setting, candidate_for=name, variant=f"router={name}")


def _final() -> Iterator[SuiteRun]:
    for noise, name in product(NOISES, NAMES):
        base: Fields = {"split": "test", "seeds": FINAL_SEEDS, "task.noise": noise}
        yield SuiteRun(f"final-noise{noise:g}-{name}", base, best_of=name, variant=f"router={name}")
