"""A second network: a small vision transformer on CIFAR-100's coarse labels, from scratch, pruned by the same methods.

Every matrix but embeddings is pruned, with one budget over the whole network. Each method is trained at the best of
`RATES` on validation, chosen at 2 % in half the steps; all else is the first of the two settings that it has to choose
from on MNIST. The suite is to take less than an hour, so there are few methods, and steps.
"""

from collections.abc import Iterator

from experiments.core.suite.plan import SuiteRun
from experiments.mnist_pruning.method import Fields
from experiments.mnist_pruning.suite import best

VARIANT = "network=vit"
METHODS = ("hard", "annealed-p2", "annealed-p4_3", "identity_straight_through", "gradual", "movement")
DENSITIES = (0.1, 0.02)
RATES = (1e-3, 3e-3)
SWEEP: Fields = {"split": "validation", "seeds": (100,), "density": 0.02, "steps": 800, "eval_every": 800}
FINAL: Fields = {"split": "test", "seeds": (0, 1, 2), "steps": 1600, "eval_every": 1600}


def vit() -> list[SuiteRun]:
    """The sweeps, then the runs on test."""
    methods = best.at_first_setting(METHODS)
    return [*_sweep(methods), *_final(methods)]


def _sweep(methods: dict[str, Fields]) -> Iterator[SuiteRun]:
    for name, fields in methods.items():
        for rate in RATES:
            setting = {"optimizer.learning_rate": rate}
            yield SuiteRun(
                f"sweep/best/{name}-lr{rate:g}",
                fields | SWEEP,
                setting,
                candidate_for=name,
                variant=VARIANT,
                chosen_by=best.chosen_by(fields),
            )


def _final(methods: dict[str, Fields]) -> Iterator[SuiteRun]:
    for name, fields in methods.items():
        for density in DENSITIES[:1] if name == "dense" else DENSITIES:
            run = f"best/network-{name}-{density:g}"
            yield SuiteRun(run, fields | FINAL | {"density": density}, best_of=name, variant=VARIANT)
