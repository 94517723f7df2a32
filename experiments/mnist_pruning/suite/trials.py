"""Which settings of each method the suites train, and from which they choose on validation."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.mnist_pruning.methods import METHODS
from experiments.mnist_pruning.methods.relaxed import SUPPORT

Fields = dict[str, Any]  # of a config, by dotted name

PAPER_LAM = 1e-4
P = {"p2": 2.0, "p4_3": 4 / 3}  # of the paper
# Learning rates to choose from; lower ones for methods that hardly train at 1.
RATES, LOWER_RATES = (0.1, 0.3, 1.0), (0.03, 0.1, 0.3)
_EXPONENTS = {"p2": 2.0, "p3_2": 3 / 2, "p4_3": 4 / 3, "p5_4": 5 / 4}


@dataclasses.dataclass(frozen=True)
class Trial:
    """A run on test with `fields`, and with the best of `candidates` on validation if there are any.

    Attributes:
      fields: of the config.
      candidates: settings to choose from, by name.
      rates: learning rates to choose from with each of them, for methods at their best.
      sweep_seeds: how many seeds each candidate has; fewer where a step is dear.
      seeds: how many seeds the run on test has.
    """

    fields: Fields
    candidates: Mapping[str, Fields] = dataclasses.field(default_factory=dict)
    rates: Sequence[float] = RATES
    sweep_seeds: int = 3
    seeds: int = 10


def of(method: str) -> Fields:
    """The fields of a method, with the first density schedule that it can follow."""
    return {"method": method, "density_schedule.name": METHODS[method].density_schedules[0]}


def _each(label: str, field: str, *values: float, written: Callable[[float], str] = "{:g}".format) -> dict[str, Fields]:
    return {f"{label}{written(value)}": {field: value} for value in values}


def _scientific(value: float) -> str:
    """`1e-3`, `1`, `10`."""
    return f"{value:g}" if value >= 1 else f"{value:.0e}".replace("e-0", "e-")


def _lams(label: str, *lams: float) -> dict[str, Fields]:
    return _each(label, "lam.start", *lams, written=_scientific)


def papers(p: float) -> Fields:
    """The setting of the paper: lam = 1e-4, and selected weights shrunk."""
    return of("relaxed") | {"p": p, "debias": False, "lam.schedule": "constant", "lam.start": PAPER_LAM}


def rescaled(p: float) -> Fields:
    """At large lam only the rescaled operator keeps the weights' size, so the sweeps use that."""
    return of("relaxed") | {"p": p, "debias": True, "lam.schedule": "constant"}


def annealed(p: float, start: float) -> Fields:
    """Starts close to the identity, so dense, and hardens."""
    return rescaled(p) | {"lam.schedule": "geometric", "lam.start": start, "lam.end": 1e-3}


def steady(p: float, start: float) -> Fields:
    """`annealed`, but lam stays above what makes steps at the threshold large; hard for the last tenth.

    A step moves a pair at the threshold by the learning rate over 2 lam. At a rate of 0.05 and lam = 1e-3 that is 25
    times the difference of gradients, and now and then a network is lost in its last epochs.
    """
    return annealed(p, start) | {"lam.end": 1e-2, "hard_after": 0.9}


_STRAIGHT_THROUGH = rescaled(2.0) | of("straight_through")
# Runs at given settings: every method, for the demo and the quick suite.
_SEVERAL: dict[str, dict[str, Fields]] = {
    "relaxed": {
        **{f"relaxed-{name}": papers(p) for name, p in P.items()},
        "annealed-p2": steady(2.0, 10.0),
        "annealed-p4_3": steady(4 / 3, 3.0),
    },
    "straight_through": {"straight_through": _STRAIGHT_THROUGH | {"lam.start": 0.1}},
    "mask_straight_through": {
        "lapsum_straight_through": of("mask_straight_through") | {"mask.name": "lapsum", "mask.strength": 0.1}
    },
}


def given() -> dict[str, Fields]:
    """The runs at given settings, by name, in the order of METHODS."""
    runs = [_SEVERAL.get(name, {name: of(name)}) for name in METHODS]
    return {run: fields for of_method in runs for run, fields in of_method.items()}


# The paper's setting: its own lam, then lam at its best, constant and annealed; and the methods beside it.
IN_PAPERS_SETTING = {
    "dense": Trial(of("dense")),
    "hard": Trial(of("hard")),
    **{f"relaxed-{name}": Trial(papers(p)) for name, p in P.items()},
    **{
        name: trial
        for p_name, p in P.items()
        for name, trial in {
            f"constant-{p_name}": Trial(rescaled(p), _lams("lam", 1e-4, 1e-3, 1e-2, 1e-1, 1.0)),
            f"annealed-{p_name}": Trial(annealed(p, 1.0), _lams("start", 1.0, 3.0, 10.0)),
        }.items()
    },
    "straight_through": Trial(_STRAIGHT_THROUGH, _lams("lam", 1e-2, 1e-1, 1.0)),
    # Smaller epsilons learn more slowly.
    "ot_straight_through": Trial(
        of("ot_straight_through"),
        _each("epsilon", "ot.epsilon", 3e-2, 1e-1, 1.0, written=_scientific),
        sweep_seeds=1,
        seeds=5,
    ),
    "hard_concrete": Trial(of("hard_concrete")),
    "ista": Trial(of("ista")),
}

_CUBIC = {"density_schedule.name": "cubic"}
_ENDS = {name: _CUBIC | end for name, end in _each("end", "density_schedule.end", 0.7, 0.5).items()}
_STARTS = {"p2": (10.0, 3.0), "p3_2": (10.0, 3.0), "p4_3": (3.0, 1.0), "p5_4": (3.0, 1.0)}
# Every method at its best: two settings of each to choose from, of the relaxed operator two for every exponent, each at
# three learning rates; lower ones for methods that hardly trained at 1. Top-KAST trains at none, nor does a constant
# density: 2 % of the network leave the first matrix empty.
AT_BEST = {
    "dense": Trial({"method": "dense"}, {"dense": {}}, rates=(0.03, 0.05, 0.1, 0.2, 0.3, 1.0)),
    "hard": Trial(of("hard"), _ENDS, LOWER_RATES),
    **{f"annealed-{name}": Trial(steady(p, 1.0), _lams("start", *_STARTS[name])) for name, p in _EXPONENTS.items()},
    **{
        f"support-{name}": Trial(
            rescaled(_EXPONENTS[name]) | {"lam.schedule": SUPPORT}, _each("end", "hard_after", 0.7, 0.9)
        )
        for name in ("p2", "p3_2", "p4_3")
    },
    "identity_straight_through": Trial(of("identity_straight_through"), _ENDS, LOWER_RATES),
    "st3": Trial(of("st3"), _ENDS, LOWER_RATES),
    "gradual": Trial(of("gradual"), _ENDS, LOWER_RATES),
    "movement": Trial(of("movement"), _ENDS),
    "rigl": Trial(of("rigl"), _each("drop", "rigl.drop", 0.3, 0.5), (0.1, 0.3, 0.5)),
    "topkast": Trial(of("topkast"), _each("backward", "topkast.backward_density", 0.2, 0.5)),
    "str": Trial(of("str"), _each("decay", "str.weight_decay", 1e-2, 3e-2, written=_scientific), (0.1, 0.3, 0.5)),
}


def chosen_by(fields: Mapping[str, Any]) -> str | None:
    """The metric of the dense network, which is not there to be hardened; None for others: that of the suite."""
    return "valid_error" if fields["method"] == "dense" else None
