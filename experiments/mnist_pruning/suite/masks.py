"""Hard top-k with the gradient of each relaxed mask, at a strength chosen on validation: the preset `masks`."""

from collections.abc import Mapping, Sequence

from experiments.core.suite.plan import SuiteRun
from experiments.mnist_pruning.suite.trials import Fields, of

_EPOCHS = 10
_CHOOSING, _FINAL = (100, 101, 102), tuple(range(10))
_COMMON: Fields = {"epochs": _EPOCHS, "checkpoint_every": _EPOCHS, "prune_layers": (1, 2, 3)}
_TEMPERATURES = (1e-3, 3e-3, 1e-2, 3e-2, 0.1)
_LAMS = (3e-3, 1e-2, 3e-2, 0.1, 0.3)  # whose step is about four times as narrow at the same number
# Left out are NeuralSort, which takes k n = 63 million operations in the first matrix in every step, and SoftSort and
# the perturbed mask, which take ten times as long as the others.
STRENGTHS: Mapping[str, Sequence[float]] = {
    "relaxed_p2": _LAMS,
    "relaxed_p3_2": _LAMS,
    "relaxed_p4_3": _LAMS,
    "sigmoid": _TEMPERATURES,
    "lapsum": _TEMPERATURES,
    "dftopk": _TEMPERATURES,
    "entropic_ot": (3e-2, 0.1, 0.3, 1.0, 3.0),  # of standardised weights
}
# Beside them no gradient for what is not selected, and that of the selected weights for all.
_BESIDE = ("hard", "identity_straight_through")


def masks() -> list[SuiteRun]:
    """Five strengths of each mask, and the best of them on test; ten epochs each."""
    runs = []
    for name, strengths in STRENGTHS.items():
        base = _COMMON | of("mask_straight_through") | {"mask.name": name}
        for strength in strengths:
            fields = base | {"split": "validation", "seeds": _CHOOSING}
            setting = {"mask.strength": strength}
            runs.append(SuiteRun(f"sweep/{name}-{strength:g}", fields, setting, candidate_for=name))
        runs.append(SuiteRun(f"final-{name}", base | {"split": "test", "seeds": _FINAL}, best_of=name))
    beside = ((name, _COMMON | of(name)) for name in _BESIDE)
    return [*runs, *(SuiteRun(f"final-{name}", base | {"split": "test", "seeds": _FINAL}) for name, base in beside)]
