"""The presets of the suite, as lists of runs.

full   the runs of results/mnist_pruning: hyper-parameters chosen on validation, then every method on test, for both
       sets of pruned layers; then every method at its best (`best.py`), and why the paper's lam fails (`why`); about
       110 minutes on 2 CPU cores
best, why   these parts alone
vit    a second network, a small vision transformer on CIFAR-100's coarse labels (`best.py`); an hour on one CPU core
resnet  a convolutional network, ResNet-20 on CIFAR-100 (`best.py`); for a GPU, not trained yet
lenet  LeNet-300-100, the network of many papers, at low densities (`best.py`); hours on one CPU core
masks  hard top-k with the gradient of every relaxed mask, for results/relaxations; 40 minutes
quick  the main methods at the paper's and at known good settings, 3 seeds, 10 epochs; minutes
demo   every method on scikit-learn's digits, nothing to download; a few minutes on 2 CPU cores
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from experiments.core.suite.plan import SuiteRun
from experiments.mnist_pruning.suite import best, masks
from experiments.mnist_pruning.suite.trials import (
    IN_PAPERS_SETTING,
    Fields,
    P,
    Trial,
    annealed,
    at_given_settings,
    chosen_by,
    fields_of,
    papers,
)

LAYERS = ((1, 2, 3), (2, 3))
EPOCHS = 30
SWEEP_SEEDS = (100, 101, 102)
FINAL_SEEDS = tuple(range(10))
# The methods of Figure 5, with the layers that the paper's slides prune: ten seeds cannot tell these methods apart.
FIGURE5 = {"hard", "relaxed-p2", "relaxed-p4_3"}
FIGURE5_LAYERS = (2, 3)
FIGURE5_SEEDS = tuple(range(40))

# The paper's learning rate is low for 30 epochs, most of all for the relaxed operator. So these methods train once more
# at the best of these rates; nothing else is chosen, and lam is that of the config's variant.
TUNED_LAYERS = (1, 2, 3)
TUNED = {"dense": fields_of("dense"), "hard": fields_of("hard"), "annealed-p4_3": annealed(4 / 3, 3.0)}
TUNED_RATES = (0.03, 0.1)

QUICK_EPOCHS = 10
QUICK = ("dense", "hard", "relaxed-p2", "relaxed-p4_3", "annealed-p4_3", "straight_through")

DEMO = {
    "dataset": "digits",
    "seeds": (0, 1, 2),
    "epochs": 30,
    "batch_size": 32,
    "optimizer.learning_rate": 0.05,
    "prune_layers": (1, 2, 3),
    # There are few steps here, so gates have to move faster.
    "hard_concrete.learning_rate": 0.1,
}

# What the paper leaves open about network, training and budget, by the names of runs.
OPEN: dict[str, Fields] = {
    "as-elsewhere": {},
    "inputs-in-0-1": {"inputs": "unit"},
    "inputs-in-1-1": {"inputs": "symmetric"},
    "inputs-from-0-to-255": {"inputs": "raw"},
    "Glorot-uniform": {"initialisation": "glorot_uniform"},
    "torch-s-initialisation": {"initialisation": "torch"},
    "normal-0-1": {"initialisation": "normal_0.1"},
    "normal-0-01": {"initialisation": "normal_0.01"},
    "momentum-0-9": {"optimizer.momentum": 0.9},
    "gradient-10-mean-over-classes": {"optimizer.learning_rate": 1e-3},
    "a-budget-for-each-unit": {"budget": "row"},
}
# What it leaves open about the operator; these runs are compared with hard top-k as elsewhere.
_TIMES = "lam-times-the-number-of-weights"
OF_OPERATOR: dict[str, Fields] = {
    _TIMES: {"lam_times_size": True},
    f"{_TIMES}-in-full": {"lam_times_size": True, "epochs": EPOCHS, "seeds": FINAL_SEEDS},
    "weights-times-the-mask-of-w": {"form": "mask"},
    "weights-times-the-mask-of-w-2": {"form": "mask_of_squares"},
    "no-gradient-of-the-selection": {"form": "stop_gradient"},
    "the-published-code-s-Jacobian": {"form": "published_jacobian"},
}
WHY: Fields = {
    "split": "test",
    "seeds": tuple(range(5)),
    "epochs": 10,
    "checkpoint_every": 10,
    "prune_layers": (1, 2, 3),
}


def full() -> list[SuiteRun]:
    """Returns the sweeps on validation, then the final runs on test."""
    rates = {f"lr{rate:g}": {"optimizer.learning_rate": rate} for rate in TUNED_RATES}
    tuned = {f"tuned-{name}": Trial(fields, rates) for name, fields in TUNED.items()}
    rounds = [*((layers, IN_PAPERS_SETTING) for layers in LAYERS), (TUNED_LAYERS, tuned)]
    in_papers = [run for make in (_sweep, _final) for layers, trials in rounds for run in make(layers, trials)]
    return in_papers + best.best() + why()


def why() -> list[SuiteRun]:
    """Returns the relaxed operator at lam = 1e-4 under everything that the paper leaves open.

    Each variant trains the relaxed operator with p = 2, and hard top-k if the variant applies to it. The first variant,
    and the one that comes nearest to hard top-k, also train with p = 4/3; the nearest also as long as the paper trains.
    Nothing is chosen, so all runs are on test.
    """
    runs = []
    for name, fields in (OPEN | OF_OPERATOR).items():
        if name in OPEN:
            runs.append(SuiteRun(f"why/{name}-hard", WHY | fields | fields_of("hard")))
        for p_name, p in P.items():
            if p == 2 or not fields or "lam_times_size" in fields:
                runs.append(SuiteRun(f"why/{name}-{p_name}", WHY | papers(p) | fields))
    return runs


def quick() -> list[SuiteRun]:
    """Returns the main methods at given settings: in the paper's setting with all layers pruned, and `best.quick`."""
    base = {"seeds": (0, 1, 2), "epochs": QUICK_EPOCHS, "checkpoint_every": QUICK_EPOCHS, "prune_layers": (1, 2, 3)}
    runs = at_given_settings()
    return [SuiteRun(f"final-{_layers((1, 2, 3))}-{name}", base | runs[name]) for name in QUICK] + best.quick()


def demo() -> list[SuiteRun]:
    """Returns every method on digits."""
    base = DEMO | {"checkpoint_every": DEMO["epochs"]}
    return [
        SuiteRun(f"final-{_layers((1, 2, 3))}-{name}", base | fields) for name, fields in at_given_settings().items()
    ]


PRESETS: dict[str, Callable[[], list[SuiteRun]]] = {
    "full": full,
    "best": best.best,
    "why": why,
    "vit": best.vit,
    "resnet": best.resnet,
    "lenet": best.lenet,
    "masks": masks.masks,
    "quick": quick,
    "demo": demo,
}


def _sweep(layers: Sequence[int], trials: Mapping[str, Trial]) -> Iterator[SuiteRun]:
    """Yields the candidates for every choice for `layers`."""
    common: Fields = {"split": "validation", "epochs": EPOCHS, "checkpoint_every": EPOCHS, "prune_layers": layers}
    for name, trial in trials.items():
        choice, seeds = f"{_layers(layers)}-{name}", {"seeds": SWEEP_SEEDS[: trial.sweep_seeds]}
        for label, setting in trial.candidates.items():
            yield SuiteRun(
                f"sweep/{choice}-{label}",
                common | seeds | trial.fields,
                setting,
                candidate_for=choice,
                chosen_by=chosen_by(trial.fields),
            )


def _final(layers: Sequence[int], trials: Mapping[str, Trial]) -> Iterator[SuiteRun]:
    """Yields every method for `layers`, at the paper's settings and at the chosen ones."""
    common: Fields = {"split": "test", "epochs": EPOCHS, "checkpoint_every": EPOCHS // 3, "prune_layers": layers}
    for method, trial in trials.items():
        many = layers == FIGURE5_LAYERS and method in FIGURE5
        name, seeds = f"{_layers(layers)}-{method}", FIGURE5_SEEDS if many else FINAL_SEEDS[: trial.seeds]
        best_of = name if trial.candidates else None
        yield SuiteRun(f"final-{name}", common | {"seeds": seeds} | trial.fields, best_of=best_of)


def _layers(layers: Sequence[int]) -> str:
    return "layers" + "".join(map(str, layers))
