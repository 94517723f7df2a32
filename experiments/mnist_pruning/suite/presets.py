"""The suites on offer, as lists of runs.

full   what results/mnist_pruning holds: hyper-parameters chosen on validation, then every method on
       test, for both sets of pruned layers; then every method at its best (`best.py`), and why the
       paper's lam fails (`why.py`); 84 minutes on 2 CPU cores, with other jobs for some of them
best, why   these parts alone
vit    a second network, a small vision transformer on CIFAR-100's coarse labels (`vit.py`);
       an hour on one CPU core
quick  the main methods at the paper's and at known good settings, 3 seeds, 10 epochs; minutes
demo   every method on scikit-learn's digits, nothing to download; a few minutes on 2 CPU cores
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

from experiments.core.suite.plan import SuiteRun
from experiments.mnist_pruning import relaxed
from experiments.mnist_pruning.method import Fields, Trial
from experiments.mnist_pruning.methods import METHODS
from experiments.mnist_pruning.suite import best, vit, why

LAYERS = ((1, 2, 3), (2, 3))
EPOCHS = 30
SWEEP_SEEDS = (100, 101, 102)
FINAL_SEEDS = tuple(range(10))

# The paper's learning rate is low for 30 epochs, and the relaxed operator has most to learn in them: once more, each
# method at the best of these. Only the method's own choice is made here, so lam is the config's.
TUNED_LAYERS = (1, 2, 3)
TUNED: dict[str, Fields] = {
    "dense": {"method": "dense"},
    "hard": {"method": "hard"},
    "annealed-p4_3": {"method": "relaxed", **relaxed.RELAXED.variants["annealed"]},
}
TUNED_RATES = (0.03, 0.1)

QUICK_SEEDS = (0, 1, 2)
QUICK_EPOCHS = 10
QUICK = ("dense", "hard", "relaxed-p2", "relaxed-p4_3", "annealed-p4_3", "straight_through")

DEMO_SEEDS = (0, 1, 2)
DEMO = {
    "dataset": "digits",
    "seeds": DEMO_SEEDS,
    "epochs": 30,
    "batch_size": 32,
    "optimizer.learning_rate": 0.05,
    "prune_layers": (1, 2, 3),
    # Gates see few steps here, so they have to move faster.
    "hard_concrete.learning_rate": 0.1,
}


def full() -> list[SuiteRun]:
    """The sweep on validation, then the final runs on test."""
    rates = {f"lr{rate:g}": {"optimizer.learning_rate": rate} for rate in TUNED_RATES}
    tuned = {f"tuned-{name}": Trial(fields, rates) for name, fields in TUNED.items()}
    rounds = [*((layers, _trials()) for layers in LAYERS), (TUNED_LAYERS, tuned)]
    papers = [run for make in (_sweep, _final) for layers, trials in rounds for run in make(layers, trials)]
    return papers + best.best() + why.why()


def quick() -> list[SuiteRun]:
    """The main methods, all layers pruned, without a sweep."""
    base = {"seeds": QUICK_SEEDS, "epochs": QUICK_EPOCHS, "checkpoint_every": QUICK_EPOCHS, "prune_layers": (1, 2, 3)}
    papers = [SuiteRun(f"final-{_layers((1, 2, 3))}-{name}", base | _fixed()[name]) for name in QUICK]
    return papers + best.quick()


def demo() -> list[SuiteRun]:
    """Every method on digits."""
    base = DEMO | {"checkpoint_every": DEMO["epochs"]}
    return [SuiteRun(f"final-{_layers((1, 2, 3))}-{name}", base | fields) for name, fields in _fixed().items()]


PRESETS: dict[str, Callable[[], list[SuiteRun]]] = {
    "full": full,
    "best": best.best,
    "why": why.why,
    "vit": vit.vit,
    "quick": quick,
    "demo": demo,
}


def _sweep(layers: Sequence[int], trials: Mapping[str, Trial]) -> Iterator[SuiteRun]:
    """The candidates for every choice to be made for `layers`."""
    common: Fields = {"split": "validation", "epochs": EPOCHS, "checkpoint_every": EPOCHS, "prune_layers": layers}
    for name, trial in trials.items():
        choice, seeds = f"{_layers(layers)}-{name}", {"seeds": SWEEP_SEEDS[: trial.sweep_seeds]}
        for label, setting in trial.candidates.items():
            yield SuiteRun(
                f"sweep/{choice}-{label}",
                common | seeds | trial.fields,
                setting,
                candidate_for=choice,
                chosen_by=best.chosen_by(trial.fields),
            )


def _final(layers: Sequence[int], trials: Mapping[str, Trial]) -> Iterator[SuiteRun]:
    """Every method for `layers`: the paper's settings, and those chosen."""
    common: Fields = {"split": "test", "epochs": EPOCHS, "checkpoint_every": EPOCHS // 3, "prune_layers": layers}
    for name, trial in trials.items():
        name, seeds = f"{_layers(layers)}-{name}", {"seeds": FINAL_SEEDS[: trial.seeds]}
        yield SuiteRun(f"final-{name}", common | seeds | trial.fields, best_of=name if trial.candidates else None)


def _fixed() -> dict[str, Fields]:
    """The runs at settings that are given, by name, in the order of METHODS."""
    return {
        run: {"method": name, **method.fields, **fields}
        for name, method in METHODS.items()
        for run, fields in (method.fixed() if method.fixed else {name: {}}).items()
    }


def _trials() -> dict[str, Trial]:
    """The lines of the full suite, by name, in the order of METHODS."""
    return {
        run: dataclasses.replace(trial, fields={"method": name, **method.fields, **trial.fields})
        for name, method in METHODS.items()
        for run, trial in (method.trials() if method.trials else {name: Trial()}).items()
    }


def _layers(layers: Sequence[int]) -> str:
    return "layers" + "".join(map(str, layers))
