"""The suites on offer, as lists of runs.

full   what results/mnist_pruning holds: hyper-parameters chosen on validation, then every method on
       test, for both sets of pruned layers; under an hour on 2 CPU cores
quick  the main methods at the paper's and at known good settings, 3 seeds, 10 epochs; minutes
demo   every method on scikit-learn's digits, nothing to download; under two minutes
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from experiments.core.suite.plan import Run

LAYERS = ((1, 2, 3), (2, 3))
P = (2.0, 4 / 3)
PAPER_LAM = 1e-4

EPOCHS = 30
SWEEP_SEEDS = (100, 101, 102)
OT_SWEEP_SEEDS = (100,)  # each step costs many times that of the others
FINAL_SEEDS = tuple(range(10))
OT_FINAL_SEEDS = tuple(range(5))

CONSTANT_LAMS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
ANNEALED_STARTS = (1.0, 3.0, 10.0)
ANNEALED_END = 1e-3
STRAIGHT_THROUGH_LAMS = (1e-2, 1e-1, 1.0)
OT_EPSILONS = (3e-2, 1e-1, 1.0)  # smaller ones take many times as long and learn more slowly

# The paper's learning rate is low for 30 epochs, and the relaxed operator has most to learn in them: once more, each
# method at the best of these. Only the method's own choice is made here, so lam is the config's.
TUNED_LAYERS = (1, 2, 3)
TUNED_RATES = (0.03, 0.1)

QUICK_SEEDS = (0, 1, 2)
QUICK_EPOCHS = 10

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

Fields = dict[str, Any]


def full() -> list[Run]:
    """The sweep on validation, then the final runs on test."""
    runs: list[Run] = []
    for layers in LAYERS:
        runs += _sweep(layers)
    runs += _tuned_sweep()
    for layers in LAYERS:
        runs += _final(layers)
    runs += _tuned_final()
    return runs


def quick() -> list[Run]:
    """The main methods, all layers pruned, without a sweep."""
    base = {"seeds": QUICK_SEEDS, "epochs": QUICK_EPOCHS, "checkpoint_every": QUICK_EPOCHS, "prune_layers": (1, 2, 3)}
    methods: list[tuple[str, Fields]] = [
        ("dense", _method("dense")),
        ("hard", _method("hard")),
        *((f"relaxed-p{_p(p)}", _paper(p)) for p in P),
        (f"annealed-p{_p(4 / 3)}", _annealed(4 / 3, 3.0)),
        ("straight_through", _straight_through(1e-1)),
    ]
    return [Run(f"final-{_layers((1, 2, 3))}-{name}", base | fields) for name, fields in methods]


def demo() -> list[Run]:
    """Every method on digits."""
    base = DEMO | {"checkpoint_every": DEMO["epochs"]}
    methods: list[tuple[str, Fields]] = [
        ("dense", _method("dense")),
        ("hard", _method("hard")),
        *((f"relaxed-p{_p(p)}", _paper(p)) for p in P),
        (f"annealed-p{_p(2.0)}", _annealed(2.0, 10.0)),
        (f"annealed-p{_p(4 / 3)}", _annealed(4 / 3, 3.0)),
        ("straight_through", _straight_through(1e-1)),
        ("ot_straight_through", _ot(1e-1)),
        ("lapsum_straight_through", _mask("lapsum", 1e-1)),
        ("hard_concrete", _method("hard_concrete")),
        ("ista", _method("ista")),
    ]
    return [Run(f"final-{_layers((1, 2, 3))}-{name}", base | fields) for name, fields in methods]


PRESETS: dict[str, Callable[[], list[Run]]] = {"full": full, "quick": quick, "demo": demo}


def _candidate(layers: Sequence[int], choice: str, label: str, base: Fields, setting: Fields) -> Run:
    """A run on validation that competes for `choice`."""
    common = {
        "split": "validation",
        "epochs": EPOCHS,
        "checkpoint_every": EPOCHS,
        "prune_layers": tuple(layers),
        "seeds": SWEEP_SEEDS,
    }
    name = f"{_layers(layers)}-{choice}"
    return Run(f"sweep/{name}-{label}", common | base, setting, candidate_for=name)


def _one_final(layers: Sequence[int], name: str, base: Fields, *, choose: bool = False) -> Run:
    """A run on test, with the setting chosen for it if it waits for one."""
    common = {
        "split": "test",
        "epochs": EPOCHS,
        "checkpoint_every": EPOCHS // 3,
        "prune_layers": tuple(layers),
        "seeds": FINAL_SEEDS,
    }
    name = f"{_layers(layers)}-{name}"
    return Run(f"final-{name}", common | base, best_of=name if choose else None)


def _sweep(layers: Sequence[int]) -> Iterator[Run]:
    """The candidates for every choice to be made for `layers`."""
    candidate = functools.partial(_candidate, layers)

    for p in P:
        for lam in CONSTANT_LAMS:
            yield candidate(f"constant-p{_p(p)}", f"lam{_number(lam)}", _relaxed(p), {"lam.start": lam})
        for start in ANNEALED_STARTS:
            yield candidate(f"annealed-p{_p(p)}", f"start{_number(start)}", _annealed(p, start), {"lam.start": start})
    for lam in STRAIGHT_THROUGH_LAMS:
        yield candidate("straight_through", f"lam{_number(lam)}", _straight_through(lam), {"lam.start": lam})
    for epsilon in OT_EPSILONS:
        base = _ot(epsilon) | {"seeds": OT_SWEEP_SEEDS}
        yield candidate("ot_straight_through", f"epsilon{_number(epsilon)}", base, {"ot.epsilon": epsilon})


def _final(layers: Sequence[int]) -> Iterator[Run]:
    """Every method for `layers`: the paper's settings, and those chosen."""
    final = functools.partial(_one_final, layers)
    yield final("dense", _method("dense"))
    yield final("hard", _method("hard"))
    for p in P:
        yield final(f"relaxed-p{_p(p)}", _paper(p))
    for p in P:
        yield final(f"constant-p{_p(p)}", _relaxed(p), choose=True)
        yield final(f"annealed-p{_p(p)}", _annealed(p, 1.0), choose=True)
    yield final("straight_through", _straight_through(1.0), choose=True)
    yield final("ot_straight_through", _ot(1.0) | {"seeds": OT_FINAL_SEEDS}, choose=True)
    yield final("hard_concrete", _method("hard_concrete"))
    yield final("ista", _method("ista"))


def _tuned() -> list[tuple[str, Fields]]:
    return [
        ("dense", _method("dense")),
        ("hard", _method("hard")),
        (f"annealed-p{_p(4 / 3)}", _annealed(4 / 3, 3.0)),
    ]


def _tuned_sweep() -> Iterator[Run]:
    """The candidates for the learning rate of each method."""
    for name, base in _tuned():
        for rate in TUNED_RATES:
            yield _candidate(TUNED_LAYERS, f"tuned-{name}", f"lr{rate:g}", base, {"optimizer.learning_rate": rate})


def _tuned_final() -> Iterator[Run]:
    """Each method at its best learning rate."""
    for name, base in _tuned():
        yield _one_final(TUNED_LAYERS, f"tuned-{name}", base, choose=True)


def _method(name: str) -> Fields:
    return {"method": name}


def _paper(p: float) -> Fields:
    """As in the paper: lam = 1e-4, and selected weights shrunk."""
    return {"method": "relaxed", "p": p, "debias": False, "lam.schedule": "constant", "lam.start": PAPER_LAM}


def _relaxed(p: float) -> Fields:
    """At large lam only the rescaled operator keeps the weights' size, so the sweeps use that."""
    return {"method": "relaxed", "p": p, "debias": True, "lam.schedule": "constant"}


def _annealed(p: float, start: float) -> Fields:
    return _relaxed(p) | {"lam.schedule": "geometric", "lam.start": start, "lam.end": ANNEALED_END}


def _straight_through(lam: float) -> Fields:
    return {"method": "straight_through", "p": 2.0, "debias": True, "lam.schedule": "constant", "lam.start": lam}


def _ot(epsilon: float) -> Fields:
    return {"method": "ot_straight_through", "ot.epsilon": epsilon}


def _mask(name: str, strength: float) -> Fields:
    return {"method": "mask_straight_through", "mask.name": name, "mask.strength": strength}


def _layers(layers: Sequence[int]) -> str:
    return "layers" + "".join(map(str, layers))


def _p(p: float) -> str:
    return "4_3" if p == 4 / 3 else f"{p:g}"


def _number(value: float) -> str:
    """`1e-3`, `1`, `10`."""
    return f"{value:g}" if value >= 1 else f"{value:.0e}".replace("e-0", "e-")
