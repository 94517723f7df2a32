"""Every method at its best: a cosine learning rate, budgets of each matrix and of the whole network, low densities.

The main methods, `SEARCHED`, have ten settings each: five learning rates, then at the best of them five settings of
their own, on either side of the first. They are compared on validation in half the epochs, once at 2 % of the whole
network, for all densities of the network, and once at 10 % of each matrix, the paper's setting. All others have six
candidates, three learning rates times two settings of their own, or for the dense network six rates, compared at 2 %
of the network, and train at 10 and 2 % of it.

`vit` prunes a second network: a small vision transformer on CIFAR-100's coarse labels, from scratch, with one budget
for all matrices except embeddings. Each method trains at the best of `VIT_RATES` on validation, chosen at 2 % in half
the steps. Its other fields are the first of its two settings on MNIST; methods in `VIT_CONSTANT` have a constant
density instead.

`lenet` prunes the network that papers on pruning report, LeNet-300-100 with 784, 300, 100 and 10 units, for one budget
and fewer methods. For 2 % each has ten settings: the six candidates above, then at the best of them two other rates,
and two other settings of its own, beyond or between those that were tried. The other densities have the best of the
six. Hard top-k with its own gradient, the relaxed operator with the paper's constant lam, and the best of four changes
of the annealed one train at 2 % alone, the latter two with fewer seeds.

`resnet` prunes a convolutional network, ResNet-20 on CIFAR-100, with one budget for all convolutions and the head. Its
methods are searched as the main ones are, at 2 % in half the epochs, with rates that suit its momentum.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from experiments.core.suite.plan import SuiteRun
from experiments.mnist_pruning.suite.trials import (
    AT_BEST,
    CUBIC,
    LOWER_RATES,
    SEARCHED,
    SEARCHED_RATES,
    Fields,
    Search,
    Trial,
    chosen_by,
    each,
    fields_of,
    lams,
    papers,
)

EPOCHS = 30
COMMON: Fields = {
    "epochs": EPOCHS,
    "checkpoint_every": EPOCHS,
    "prune_layers": (1, 2, 3),
    "optimizer.schedule": "cosine",
}
SWEEP = {"split": "validation", "seeds": (100, 101), "epochs": 15, "budget": "network", "density": 0.02}
FINAL = {"split": "test", "seeds": tuple(range(10))}
# By the budget, the density at which the main methods are searched, with three seeds, and those that they train at.
SEARCHED_AT = {"network": 0.02, "matrix": 0.1}
SEARCH_SEEDS = (100, 101, 102)
DENSITIES = {"network": (0.1, 0.05, 0.02, 0.01), "matrix": (0.1,)}
FEWER_CELLS = [("network", 0.1), ("network", 0.02)]
QUICK_METHODS = ("annealed-p3_2", "annealed-p4_3", "st3", "gradual", "movement")

QUICK = {
    "seeds": (0, 1, 2),
    "epochs": 10,
    "checkpoint_every": 10,
    "optimizer.learning_rate": 0.2,
    "density": 0.02,
    "budget": "network",
}

VIT = "network=vit"  # the variant of the config
VIT_METHODS = ("hard", "annealed-p2", "annealed-p4_3", "identity_straight_through", "gradual", "movement")
VIT_CONSTANT = ("hard", "identity_straight_through")
VIT_DENSITIES = (0.1, 0.02)
VIT_RATES = (1e-3, 3e-3)
VIT_SWEEP: Fields = {"split": "validation", "seeds": (100,), "density": 0.02, "steps": 800, "eval_every": 800}
VIT_FINAL: Fields = {"split": "test", "seeds": (0, 1, 2), "steps": 1600, "eval_every": 1600}

RESNET_METHODS = ("hard", "identity_straight_through", "gradual", "movement", "annealed-p3_2")
RESNET_DENSITIES = (0.02, 0.05, 0.1)
RESNET_RATES = (0.025, 0.05, 0.1, 0.2, 0.4)
RESNET_EPOCHS = 30
RESNET_COMMON: Fields = {"epochs": RESNET_EPOCHS, "checkpoint_every": 5, "model.dtype": "bfloat16"}
RESNET_SWEEP: Fields = {"split": "validation", "seeds": (100,), "density": 0.02, "epochs": RESNET_EPOCHS // 2}
RESNET_FINAL: Fields = {"split": "test", "seeds": (0, 1, 2)}

LENET: Fields = COMMON | {"hidden": (300, 100), "checkpoint_every": 5}
LENET_METHODS = (*QUICK_METHODS, "identity_straight_through", "rigl")
LENET_PRUNED: Mapping[str, Trial] = {
    **{name: AT_BEST[name] for name in (*LENET_METHODS, "hard")},
    "papers": Trial(papers(2.0) | CUBIC, {"p2": {}, "p4_3": {"p": 4 / 3}}, LOWER_RATES, seeds=3),
}
LENET_DENSITIES = (0.02, 0.01, 0.05, 0.1)  # a suite that is stopped has run the lowest ones
# What is tried at the best of the first six settings: two rates, the second beyond the first six, and two of its own.
LENET_RATES = {"annealed-p3_2": (0.2, 0.5), "annealed-p4_3": (0.2, 0.5), "movement": (0.2, 0.5), "rigl": (0.7, 1.0)}
LENET_OTHER_RATES = (0.5, 0.8)
LENET_OTHERS: Mapping[str, Mapping[str, Fields]] = {
    "annealed-p3_2": lams("start", 30.0, 100.0),
    "annealed-p4_3": lams("start", 0.3, 10.0),
    "rigl": each("drop", "rigl.drop", 0.1, 0.2),
}
LENET_OTHER_ENDS = each("end", "density_schedule.end", 0.2, 0.35)
LENET_CHANGED, LENET_CHANGED_SEEDS = "annealed-p3_2", tuple(range(5))
LENET_CHANGES: Mapping[str, Fields] = {  # that could make its best setting better
    "lam-to-1e-3": {"lam.end": 1e-3},
    "hard-after-0.7": {"hard_after": 0.7},
    "density-falls": CUBIC | {"density_schedule.end": 0.5},
    "hard-forward": fields_of("straight_through") | CUBIC | {"density_schedule.end": 0.5},
}


def best() -> list[SuiteRun]:
    """Returns the sweeps, then the runs on test."""
    others = {name: trial for name, trial in AT_BEST.items() if name not in SEARCHED}
    sweeps = [run for name, trial in others.items() for run in _sweep(name, trial, COMMON | SWEEP)]
    finals = [_final(name, trial, COMMON, cell) for name, trial in others.items() for cell in _cells(name)]
    return sweeps + finals + [run for budget in SEARCHED_AT for run in _searched(budget)]


def _searched(budget: str) -> Iterator[SuiteRun]:
    """Yields the search of each main method with a budget, then its runs on test."""
    tried = SWEEP | {"seeds": SEARCH_SEEDS, "budget": budget, "density": SEARCHED_AT[budget]}
    for name, search in SEARCHED.items():
        yield from _search(f"{budget}-{name}", search, COMMON | tried, SEARCHED_RATES)
    for density in DENSITIES[budget]:
        for name, search in SEARCHED.items():
            fields = COMMON | search.fields | FINAL | {"budget": budget, "density": density}
            yield SuiteRun(f"best/{budget}-{name}-{density:g}", fields, best_of=f"best-{budget}-{name}")


def _search(name: str, search: Search, tried: Fields, rates: Sequence[float]) -> Iterator[SuiteRun]:
    """Yields the candidates for `best-NAME`: the rates, then at the best of them the other settings."""
    base, best, at_best_rate = tried | search.fields, f"best-{name}", f"best-{name}, rate"
    for rate in rates:
        run, setting = f"sweep/best/{name}-lr{rate:g}", {"optimizer.learning_rate": rate}
        yield SuiteRun(run, base, setting, candidate_for=at_best_rate)
    for label, own in search.others.items():
        run = f"sweep/best/{name}-{label}"
        yield SuiteRun(run, base, own, candidate_for=best, best_of=at_best_rate)


def quick() -> list[SuiteRun]:
    """Returns some of the main methods at given settings: few seeds and epochs, 2 % of the network."""
    runs = _at_first_setting(QUICK_METHODS)
    return [SuiteRun(f"best/network-{name}-0.02", COMMON | fields | QUICK) for name, fields in runs.items()]


def vit() -> list[SuiteRun]:
    """Returns the sweeps of the second network, then its runs on test."""
    methods = _at_first_setting(VIT_METHODS)
    methods |= {name: AT_BEST[name].fields for name in VIT_CONSTANT}
    return [run for make in (_vit_sweep, _vit_final) for name, fields in methods.items() for run in make(name, fields)]


def lenet() -> list[SuiteRun]:
    """Returns the sweeps of LeNet-300-100, then its runs on test."""
    tried = LENET | SWEEP
    runs = list(_sweep("dense", AT_BEST["dense"], tried))
    for name, trial in LENET_PRUNED.items():
        best, first = f"best-{name}", f"best-{name}, first"
        runs += (dataclasses.replace(run, candidate_for=first) for run in _sweep(name, trial, tried))
        rates = each("lr", "optimizer.learning_rate", *LENET_RATES.get(name, LENET_OTHER_RATES))
        for label, own in {**rates, **LENET_OTHERS.get(name, LENET_OTHER_ENDS)}.items():
            run = f"sweep/best/{name}-{label}"
            runs.append(SuiteRun(run, tried | trial.fields, own, candidate_for=best, best_of=first))
    lowest, *others = LENET_DENSITIES
    for name, trial in {"dense": AT_BEST["dense"], **LENET_PRUNED}.items():
        runs.append(_final(name, trial, LENET, ("network", lowest)))
    for density in others:
        finals = (_final(name, AT_BEST[name], LENET, ("network", density)) for name in LENET_METHODS)
        runs += (dataclasses.replace(run, best_of=f"{run.best_of}, first") for run in finals)
    fields, best = LENET_PRUNED[LENET_CHANGED].fields, f"best-{LENET_CHANGED}"
    for label, own in LENET_CHANGES.items():
        name, base = f"sweep/best/{LENET_CHANGED}-{label}", tried | {"seeds": SEARCH_SEEDS} | fields
        runs.append(SuiteRun(name, base, own, candidate_for=f"{best}, changed", best_of=best))
    final = LENET | fields | FINAL | {"seeds": LENET_CHANGED_SEEDS, "budget": "network", "density": lowest}
    runs.append(SuiteRun(f"best/network-{LENET_CHANGED}-changed", final, best_of=f"{best}, changed"))
    return runs


def resnet() -> list[SuiteRun]:
    """Returns the searches of the convolutional network, then its runs on test, the lowest density first."""
    dense = dataclasses.replace(AT_BEST["dense"], rates=RESNET_RATES)
    tried, tested = RESNET_COMMON | RESNET_SWEEP, RESNET_COMMON | RESNET_FINAL
    runs = list(_sweep("dense", dense, tried))
    for name in RESNET_METHODS:
        runs += _search(name, SEARCHED[name], tried, RESNET_RATES)
    fields = {"dense": dense.fields} | {name: SEARCHED[name].fields for name in RESNET_METHODS}
    for density in RESNET_DENSITIES:
        for name in fields if density == RESNET_DENSITIES[0] else RESNET_METHODS:
            final = tested | fields[name] | {"density": density}
            runs.append(SuiteRun(f"best/network-{name}-{density:g}", final, best_of=f"best-{name}"))
    return [dataclasses.replace(run, variant="network=resnet") for run in runs]


def _at_first_setting(names: Sequence[str]) -> dict[str, Fields]:
    """Returns the fields of the dense network, and of the named methods at the first of their settings."""
    trials = {name: AT_BEST[name] for name in ("dense", *names)}
    return {name: trial.fields | next(iter(trial.candidates.values())) for name, trial in trials.items()}


def _sweep(name: str, trial: Trial, common: Fields) -> Iterator[SuiteRun]:
    """Yields the candidates of a method."""
    for label, own in trial.candidates.items():
        for rate in trial.rates:
            yield SuiteRun(
                f"sweep/best/{name}-{label}-lr{rate:g}",
                common | trial.fields,
                own | {"optimizer.learning_rate": rate},
                candidate_for=f"best-{name}",
                chosen_by=chosen_by(trial.fields),
            )


def _final(name: str, trial: Trial, common: Fields, cell: tuple[str, float]) -> SuiteRun:
    """Returns the run of a method on test, with the budget and the density of a cell."""
    budget, density = cell
    fields = common | trial.fields | FINAL | {"seeds": FINAL["seeds"][: trial.seeds]}
    fields |= {"budget": budget, "density": density}
    return SuiteRun(f"best/{budget}-{name}-{density:g}", fields, best_of=f"best-{name}")


def _cells(name: str) -> list[tuple[str, float]]:
    """Returns the budgets and densities of a method; the dense network has one cell, as neither matters to it."""
    return FEWER_CELLS[:1] if name == "dense" else FEWER_CELLS


def _vit_sweep(name: str, fields: Fields) -> Iterator[SuiteRun]:
    for rate in VIT_RATES:
        yield SuiteRun(
            f"sweep/best/{name}-lr{rate:g}",
            fields | VIT_SWEEP,
            {"optimizer.learning_rate": rate},
            candidate_for=name,
            variant=VIT,
            chosen_by=chosen_by(fields),
        )


def _vit_final(name: str, fields: Fields) -> Iterator[SuiteRun]:
    for density in VIT_DENSITIES[:1] if name == "dense" else VIT_DENSITIES:
        run = f"best/network-{name}-{density:g}"
        yield SuiteRun(run, fields | VIT_FINAL | {"density": density}, best_of=name, variant=VIT)
