"""Hard top-k with the gradient of each relaxed mask, at a strength chosen on validation: the preset `masks`."""

from collections.abc import Mapping, Sequence

from experiments.core.suite.plan import SuiteRun
from experiments.mnist_pruning.suite.trials import Fields, fields_of

_EPOCHS = 10
_CHOOSING, _FINAL = (100, 101, 102), tuple(range(10))
_COMMON: Fields = {"epochs": _EPOCHS, "checkpoint_every": _EPOCHS, "prune_layers": (1, 2, 3)}
_TEMPERATURES = (1e-3, 3e-3, 1e-2, 3e-2, 0.1)
_LAMS = (3e-3, 1e-2, 3e-2, 0.1, 0.3)  # the step of a mask is about four times narrower than at such a temperature
# NeuralSort is left out because it takes k n = 63 million operations for the first matrix in each step; SoftSort, the
# sorting network and the perturbed mask because they take ten times as long as the others or more.
STRENGTHS: Mapping[str, Sequence[float]] = {
    "relaxed_p2": _LAMS,
    "relaxed_p3_2": _LAMS,
    "relaxed_p4_3": _LAMS,
    "sigmoid": _TEMPERATURES,
    "lapsum": _TEMPERATURES,
    "dftopk": _TEMPERATURES,
    "entropic_ot": (3e-2, 0.1, 0.3, 1.0, 3.0),  # its operator standardises the weights
    "imle": _LAMS,
}
_ONE_SAMPLE: Mapping[str, Fields] = {"imle": {"mask.num_samples": 1}}
# References: no gradient for weights that are not selected, and the same gradient for all weights.
_REFERENCES = ("hard", "identity_straight_through")


def masks() -> list[SuiteRun]:
    """Returns five strengths of each mask on validation, and the best of them on test; ten epochs each."""
    runs = []
    for name, strengths in STRENGTHS.items():
        base = _COMMON | fields_of("mask_straight_through") | {"mask.name": name} | _ONE_SAMPLE.get(name, {})
        for strength in strengths:
            fields = base | {"split": "validation", "seeds": _CHOOSING}
            setting = {"mask.strength": strength}
            runs.append(SuiteRun(f"sweep/{name}-{strength:g}", fields, setting, candidate_for=name))
        runs.append(SuiteRun(f"final-{name}", base | {"split": "test", "seeds": _FINAL}, best_of=name))
    for name in _REFERENCES:
        runs.append(SuiteRun(f"final-{name}", _COMMON | fields_of(name) | {"split": "test", "seeds": _FINAL}))
    return runs
