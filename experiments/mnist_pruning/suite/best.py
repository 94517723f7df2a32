"""Every method at its best: a cosine learning rate, budgets of each matrix and of the whole network, low densities.

Of each method as many candidates compete as of every other: `RATES` times two settings of its own (the dense network,
which has none, by `RATES` alone), on validation, with the budget of the whole network, at a density of `TUNED_AT`. What
wins there is used for the densities of that row of `TUNED_AT`, for both budgets.
"""

import dataclasses
from collections.abc import Iterator

from experiments.core.suite.plan import SuiteRun
from experiments.mnist_pruning.method import Fields, Trial
from experiments.mnist_pruning.methods import METHODS

EPOCHS = 30
RATES = (0.1, 0.2, 0.4)
SWEEP_SEEDS = (100, 101)
FINAL_SEEDS = tuple(range(10))
BUDGETS = ("network", "matrix")
TUNED_AT = {0.05: (0.1, 0.05), 0.02: (0.02, 0.01)}  # density of the sweep: densities of the runs on test
# The others have the densities of the sweeps and the first one, or the suite would take hours.
EVERYWHERE = ("annealed-p4_3", "gradual", "movement")
ELSEWHERE = (0.1, 0.02)

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
    trials = {"dense": _dense()} | _trials()
    runs = [run for make in (_sweep, _final) for name, trial in trials.items() for run in make(name, trial)]
    return runs + [_picture(name, trials[name]) for name in EVERYWHERE]


def quick() -> list[SuiteRun]:
    """The methods that are compared everywhere, at given settings: few seeds and epochs, 2 % of the network."""
    trials = {name: trial for name, trial in _trials().items() if name in EVERYWHERE}
    runs = {"dense": _dense().fields} | {
        name: trial.fields | next(iter(trial.candidates.values())) for name, trial in trials.items()
    }
    return [SuiteRun(f"best/network-{name}-0.02", fields | QUICK) for name, fields in runs.items()]


def _trials() -> dict[str, Trial]:
    """The methods that prune, by name, in the order of METHODS."""
    return {
        run: dataclasses.replace(trial, fields=_common() | {"method": name, **method.fields, **trial.fields})
        for name, method in METHODS.items()
        for run, trial in method.best().items()
    }


def _dense() -> Trial:
    return Trial(_common() | {"method": "dense"}, {"dense": {}})


def _common() -> Fields:
    return {"epochs": EPOCHS, "checkpoint_every": EPOCHS, "prune_layers": (1, 2, 3), "optimizer.schedule": "cosine"}


def _densities(name: str) -> dict[float, tuple[float, ...]]:
    """Of the sweeps, and of the runs that take what won there."""
    if name == "dense":
        return {0.05: (0.05,)}  # which says nothing of it
    if name in EVERYWHERE:
        return TUNED_AT
    return {sweep: tuple(set(densities) & set(ELSEWHERE)) for sweep, densities in TUNED_AT.items()}


def _sweep(name: str, trial: Trial) -> Iterator[SuiteRun]:
    base = trial.fields | {"split": "validation", "seeds": SWEEP_SEEDS, "budget": "network"}
    for density in _densities(name):
        for label, own in trial.candidates.items():
            for rate in RATES:
                setting = own | {"optimizer.learning_rate": rate}
                run = f"sweep/best/{name}-{density:g}-{label}-lr{rate:g}"
                yield SuiteRun(run, base | {"density": density}, setting, candidate_for=f"best-{name}-{density:g}")


def _picture(name: str, trial: Trial) -> SuiteRun:
    """A single seed that leaves its parameters."""
    fields = trial.fields | {
        "split": "test",
        "seeds": (0,),
        "budget": "network",
        "density": 0.02,
        "export_params": True,
    }
    return SuiteRun(f"pictures/{name}", fields, best_of=f"best-{name}-0.02")


def _final(name: str, trial: Trial) -> Iterator[SuiteRun]:
    base = trial.fields | {"split": "test", "seeds": FINAL_SEEDS}
    for budget in BUDGETS if name != "dense" else BUDGETS[:1]:
        for sweep, densities in _densities(name).items():
            for density in densities:
                fields = base | {"budget": budget, "density": density}
                yield SuiteRun(f"best/{budget}-{name}-{density:g}", fields, best_of=f"best-{name}-{sweep:g}")
