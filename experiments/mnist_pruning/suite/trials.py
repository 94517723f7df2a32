"""The settings of each method that the suites train, and the candidates that they choose from on validation."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.mnist_pruning.methods import METHODS
from experiments.mnist_pruning.methods.relaxed import SUPPORT

Fields = dict[str, Any]  # of a config, by dotted name

PAPER_LAM = 1e-4
P = {"p2": 2.0, "p4_3": 4 / 3}  # the paper's exponents
# Learning rates to choose from; the lower ones are for methods that hardly train at 1.
RATES, LOWER_RATES = (0.1, 0.3, 1.0), (0.03, 0.1, 0.3)
_EXPONENTS = {"p2": 2.0, "p3_2": 3 / 2, "p4_3": 4 / 3, "p5_4": 5 / 4}


@dataclasses.dataclass(frozen=True)
class Trial:
    """A run on test with `fields` and the best of `candidates` on validation, if there are any.

    Attributes:
      fields: fields of the config.
      candidates: settings to choose from, by name.
      rates: learning rates to try with each candidate, for methods at their best.
      sweep_seeds: the number of seeds of each candidate; fewer where a step is slow.
      seeds: the number of seeds of the run on test.
    """

    fields: Fields
    candidates: Mapping[str, Fields] = dataclasses.field(default_factory=dict)
    rates: Sequence[float] = RATES
    sweep_seeds: int = 3
    seeds: int = 10


def fields_of(method: str) -> Fields:
    """Returns the fields of a method, with the first density schedule that it can follow."""
    return {"method": method, "density_schedule.name": METHODS[method].density_schedules[0]}


def each(label: str, field: str, *values: float, written: Callable[[float], str] = "{:g}".format) -> dict[str, Fields]:
    """Returns a setting for each value of a field, by the names of runs."""
    return {f"{label}{written(value)}": {field: value} for value in values}


def _scientific(value: float) -> str:
    """Writes a number as `1e-3`, `1`, `10`."""
    return f"{value:g}" if value >= 1 else f"{value:.0e}".replace("e-0", "e-")


def lams(label: str, *values: float) -> dict[str, Fields]:
    """Returns a setting for each lam that training begins with, by the names of runs."""
    return each(label, "lam.start", *values, written=_scientific)


def papers(p: float) -> Fields:
    """Returns the paper's setting: lam = 1e-4, and selected weights shrunk."""
    return fields_of("relaxed") | {"p": p, "debias": False, "lam.schedule": "constant", "lam.start": PAPER_LAM}


def rescaled(p: float) -> Fields:
    """Returns the rescaled operator, which keeps the size of weights at a large lam, with a constant lam."""
    return fields_of("relaxed") | {"p": p, "debias": True, "lam.schedule": "constant"}


def annealed(p: float, start: float) -> Fields:
    """Returns the rescaled operator with falling lam: it starts near the identity, so dense, and becomes hard."""
    return rescaled(p) | {"lam.schedule": "geometric", "lam.start": start, "lam.end": 1e-3}


def annealed_then_hard(p: float, start: float) -> Fields:
    """Returns `annealed` with a lam that falls to 1e-2 only, and a hard top-k in the last tenth of training.

    A step moves a pair of weights at the threshold by the learning rate over 2 lam. At a rate of 0.05 and lam = 1e-3
    that is 25 times the difference of their gradients, and some networks are lost in their last epochs.
    """
    return annealed(p, start) | {"lam.end": 1e-2, "hard_after": 0.9}


_STRAIGHT_THROUGH = rescaled(2.0) | fields_of("straight_through")
# The methods that have several runs at given settings, or settings of their own, in the demo and the quick suite.
_GIVEN: dict[str, dict[str, Fields]] = {
    "relaxed": {
        **{f"relaxed-{name}": papers(p) for name, p in P.items()},
        "annealed-p2": annealed_then_hard(2.0, 10.0),
        "annealed-p4_3": annealed_then_hard(4 / 3, 3.0),
    },
    "straight_through": {"straight_through": _STRAIGHT_THROUGH | {"lam.start": 0.1}},
    "mask_straight_through": {
        "lapsum_straight_through": fields_of("mask_straight_through") | {"mask.name": "lapsum", "mask.strength": 0.1}
    },
}


def at_given_settings() -> dict[str, Fields]:
    """Returns every method at given settings, by the names of runs, in the order of METHODS."""
    runs = [_GIVEN.get(name, {name: fields_of(name)}) for name in METHODS]
    return {run: fields for of_method in runs for run, fields in of_method.items()}


# The methods in the paper's setting: the relaxed operator at its lam, at the best constant lam, annealed; and others.
IN_PAPERS_SETTING = {
    "dense": Trial(fields_of("dense")),
    "hard": Trial(fields_of("hard")),
    **{f"relaxed-{name}": Trial(papers(p)) for name, p in P.items()},
    **{
        name: trial
        for p_name, p in P.items()
        for name, trial in {
            f"constant-{p_name}": Trial(rescaled(p), lams("lam", 1e-4, 1e-3, 1e-2, 1e-1, 1.0)),
            f"annealed-{p_name}": Trial(annealed(p, 1.0), lams("start", 1.0, 3.0, 10.0)),
        }.items()
    },
    "straight_through": Trial(_STRAIGHT_THROUGH, lams("lam", 1e-2, 1e-1, 1.0)),
    # A smaller epsilon trains more slowly.
    "ot_straight_through": Trial(
        fields_of("ot_straight_through"),
        each("epsilon", "ot.epsilon", 3e-2, 1e-1, 1.0, written=_scientific),
        sweep_seeds=1,
        seeds=5,
    ),
    "hard_concrete": Trial(fields_of("hard_concrete")),
    "ista": Trial(fields_of("ista")),
}

CUBIC = {"density_schedule.name": "cubic"}
_ENDS = {name: CUBIC | end for name, end in each("end", "density_schedule.end", 0.7, 0.5).items()}
_STARTS = {"p2": (10.0, 3.0), "p3_2": (10.0, 3.0), "p4_3": (3.0, 1.0), "p5_4": (3.0, 1.0)}


@dataclasses.dataclass(frozen=True)
class Search:
    """The ten settings of a method that is tuned as much as its rivals: five learning rates, then five at the best.

    Attributes:
      fields: fields of the config, with a middle value of what is tried at the best rate.
      others: the settings that are tried at the best rate, on either side of the middle, by name.
    """

    fields: Fields
    others: Mapping[str, Fields]


SEARCHED_RATES = (0.05, 0.1, 0.2, 0.4, 0.8)


def _until(method: str) -> Search:
    """Returns the search of a method whose density falls until a share of training."""
    middle = fields_of(method) | CUBIC | {"density_schedule.end": 0.5}
    return Search(middle, each("end", "density_schedule.end", 0.1, 0.2, 0.35, 0.7, 0.9))


SEARCHED = {
    "hard": _until("hard"),
    "annealed-p3_2": Search(annealed_then_hard(3 / 2, 10.0), lams("start", 1.0, 3.0, 30.0, 100.0, 300.0)),
    "annealed-p4_3": Search(annealed_then_hard(4 / 3, 3.0), lams("start", 0.3, 1.0, 10.0, 30.0, 100.0)),
    "identity_straight_through": _until("identity_straight_through"),
    "st3": _until("st3"),
    "gradual": _until("gradual"),
    "movement": _until("movement"),
}
# Every method at its best: each has two settings to choose from, the relaxed operator two for each exponent, at three
# learning rates. Those of `SEARCHED` are for LeNet, the transformer and `quick` alone. Methods that hardly train at 1
# have lower rates. Top-KAST trains at none of them, and neither does a constant density: with 2 % of the network the
# first matrix is empty.
AT_BEST = {
    "dense": Trial({"method": "dense"}, {"dense": {}}, rates=(0.03, 0.05, 0.1, 0.2, 0.3, 1.0)),
    "hard": Trial(fields_of("hard"), _ENDS, LOWER_RATES),
    **{
        f"annealed-{name}": Trial(annealed_then_hard(p, 1.0), lams("start", *_STARTS[name]))
        for name, p in _EXPONENTS.items()
    },
    **{
        f"support-{name}": Trial(
            rescaled(_EXPONENTS[name]) | {"lam.schedule": SUPPORT}, each("end", "hard_after", 0.7, 0.9)
        )
        for name in ("p2", "p3_2", "p4_3")
    },
    "identity_straight_through": Trial(fields_of("identity_straight_through"), _ENDS, LOWER_RATES),
    "st3": Trial(fields_of("st3"), _ENDS, LOWER_RATES),
    "gradual": Trial(fields_of("gradual"), _ENDS, LOWER_RATES),
    "movement": Trial(fields_of("movement"), _ENDS),
    "rigl": Trial(fields_of("rigl"), each("drop", "rigl.drop", 0.3, 0.5), (0.1, 0.3, 0.5)),
    "topkast": Trial(fields_of("topkast"), each("backward", "topkast.backward_density", 0.2, 0.5)),
    "str": Trial(fields_of("str"), each("decay", "str.weight_decay", 1e-2, 3e-2, written=_scientific), (0.1, 0.3, 0.5)),
}


def chosen_by(fields: Mapping[str, Any]) -> str | None:
    """Returns the metric that chooses for the dense network, which is not hardened; None for others: the suite's."""
    return "valid_error" if fields["method"] == "dense" else None
