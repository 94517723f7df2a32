"""Every method at its best: a cosine learning rate, budgets of each matrix and of the whole network, low densities.

Of each method as many candidates compete as of every other: `RATES` times two settings of its own (the dense network,
which has none, by `RATES` alone), on validation, at 2 % of the whole network, in half the epochs. What wins there is
used for all densities and both budgets. The suite is to take less than 90 minutes, so the methods that are not in
`EVERYWHERE` go without a budget for each matrix, and have two densities. Of the relaxed operators that one is there
which has the least error on validation, p = 3/2, and the paper's p = 4/3.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from experiments.core.suite.plan import SuiteRun
from experiments.mnist_pruning.method import Fields, Trial
from experiments.mnist_pruning.methods import METHODS

EPOCHS = 30
COMMON: Fields = {
    "epochs": EPOCHS,
    "checkpoint_every": EPOCHS,
    "prune_layers": (1, 2, 3),
    "optimizer.schedule": "cosine",
}
RATES = (0.1, 0.3, 1.0)
SWEEP = {"split": "validation", "seeds": (100, 101), "epochs": 15, "budget": "network", "density": 0.02}
FINAL = {"split": "test", "seeds": tuple(range(10))}
DENSITIES = (0.1, 0.05, 0.02, 0.01)
EVERYWHERE = ("annealed-p3_2", "annealed-p4_3", "gradual", "movement")
CELLS = [(budget, density) for budget in ("network", "matrix") for density in DENSITIES]
FEWER_CELLS = [("network", 0.1), ("network", 0.02)]

QUICK_SEEDS = (0, 1, 2)
QUICK = {
    "seeds": QUICK_SEEDS,
    "epochs": 10,
    "checkpoint_every": 10,
    "optimizer.learning_rate": 0.2,
    "density": 0.02,
    "budget": "network",
}


def best() -> list[SuiteRun]:
    """The sweeps, then the runs on test."""
    trials = _trials()
    runs = [run for make in (_sweep, _final) for name, trial in trials.items() for run in make(name, trial)]
    return runs + [_picture(name, trials[name]) for name in EVERYWHERE]


def quick() -> list[SuiteRun]:
    """The methods that are compared everywhere, at given settings: few seeds and epochs, 2 % of the network."""
    runs = at_first_setting(EVERYWHERE)
    return [SuiteRun(f"best/network-{name}-0.02", COMMON | fields | QUICK) for name, fields in runs.items()]


def at_first_setting(names: Sequence[str]) -> dict[str, Fields]:
    """The dense network, and the methods of these names at the first of the settings that they have to choose from."""
    first = {name: trial.fields | next(iter(trial.candidates.values())) for name, trial in _trials().items()}
    return {name: first[name] for name in ("dense", *names)}


def chosen_by(fields: Fields) -> str | None:
    """The metric of the dense network, which is not there to be hardened; of others that of the suite."""
    return "valid_error" if fields["method"] == "dense" else None


def _trials() -> dict[str, Trial]:
    """The dense network, then the methods that prune, by name, in the order of METHODS."""
    return {"dense": Trial({"method": "dense"}, {"dense": {}})} | {
        run: dataclasses.replace(trial, fields={"method": name, **method.fields, **trial.fields})
        for name, method in METHODS.items()
        for run, trial in method.best().items()
    }


def _sweep(name: str, trial: Trial) -> Iterator[SuiteRun]:
    for label, own in trial.candidates.items():
        for rate in RATES:
            yield SuiteRun(
                f"sweep/best/{name}-{label}-lr{rate:g}",
                COMMON | trial.fields | SWEEP,
                own | {"optimizer.learning_rate": rate},
                candidate_for=f"best-{name}",
                chosen_by=chosen_by(trial.fields),
            )


def _final(name: str, trial: Trial) -> Iterator[SuiteRun]:
    for budget, density in _cells(name):
        fields = COMMON | trial.fields | FINAL | {"budget": budget, "density": density}
        yield SuiteRun(f"best/{budget}-{name}-{density:g}", fields, best_of=f"best-{name}")


def _cells(name: str) -> list[tuple[str, float]]:
    """Budgets and densities; neither says anything of the dense network."""
    return CELLS if name in EVERYWHERE else FEWER_CELLS[:1] if name == "dense" else FEWER_CELLS


def _picture(name: str, trial: Trial) -> SuiteRun:
    """A single seed that leaves its parameters."""
    fields = FINAL | {"seeds": (0,), "budget": "network", "density": 0.02, "export_params": True}
    return SuiteRun(f"pictures/{name}", COMMON | trial.fields | fields, best_of=f"best-{name}")
