"""Trains all runs of a preset, makes tables and figure: `python -m experiments.sparse_attention.suite --out=DIR`.

pairs  dense models, from which every selector goes on. Rate and strength of each are chosen at recall with k = 2 on
       another seed and other examples, six tries each; then all train at every k
"""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from experiments.core import console
from experiments.core.suite import command
from experiments.core.suite.plan import Suite, SuiteRun
from experiments.sparse_attention import experiment, report

Fields = dict[str, Any]

SWEEP_SEEDS, FINAL_SEEDS, FEWER_SEEDS = (100,), tuple(range(10)), tuple(range(5))
RATES = (1e-3, 3e-3)
K_OF_CHOICE, KS = 2, (2, 1)  # in the order of training
ALONE = ("straight_through", "sigmoid", "best", "kl", "support")  # of which the indexer is trained alone, too


class Strength(NamedTuple):
    """The field that is chosen with the rate, and its values; where a lam falls, its start."""

    field: str
    values: tuple[float, ...]


_LAM = "selector.lam.start"
STRENGTHS = {
    "straight_through": Strength(_LAM, (0.3, 1.0, 3.0)),
    "sigmoid": Strength(_LAM, (0.1, 0.3, 1.0)),
    "best_sigmoid": Strength(_LAM, (0.1, 0.3, 1.0)),
    "best": Strength("selector.spare", (2, 4, 8)),
    "kl": Strength(_LAM, (1.0, 3.0, 10.0)),
    "kl_sparse": Strength(_LAM, (1.0, 3.0, 10.0)),
    "support": Strength(_LAM, (3.0, 6.0, 14.0)),
    "relaxed": Strength(_LAM, (1.0, 4.0, 16.0)),
    "lapsum": Strength(_LAM, (0.5, 2.0, 8.0)),
    "sparsek": Strength(_LAM, (0.3, 1.0, 3.0)),
    "added": Strength(_LAM, (1.0, 4.0, 16.0)),
}
SELECTED = (*STRENGTHS, "frozen")
_FALLING = ("support", "relaxed", "lapsum")  # the lam of others ends where it starts


def pairs() -> list[SuiteRun]:
    """Returns dense models, sweeps on validation, and the final runs of recall."""
    return [*_dense(), *_sweep(), *_finals()]


def _variant(selector: str) -> str:
    return f"selector={selector}"


def _dense() -> Iterator[SuiteRun]:
    fields: Fields = {"split": "validation", "seeds": SWEEP_SEEDS}
    yield SuiteRun("sweep/dense-recall", fields, variant=_variant("dense"))
    yield SuiteRun("dense-recall", {"seeds": FINAL_SEEDS}, variant=_variant("dense"))


def settings(selector: str) -> Iterator[Fields]:
    """Yields the settings that a selector chooses from."""
    if selector not in STRENGTHS:
        yield from ({"optimizer.learning_rate": rate} for rate in RATES)
        return
    field, values = STRENGTHS[selector]
    for rate, value in itertools.product(RATES, values):
        fields: Fields = {"optimizer.learning_rate": rate, field: value}
        if field == _LAM and selector not in _FALLING:
            fields["selector.lam.end"] = value
        if selector == "support":  # whose lam is a number of slots
            fields["selector.spare"] = int(value)
        yield fields


def _sweep() -> Iterator[SuiteRun]:
    base: Fields = {"split": "validation", "seeds": SWEEP_SEEDS, "selector.k": K_OF_CHOICE}
    for selector in SELECTED:
        for setting in settings(selector):
            name = "-".join([selector, *(f"{value:g}" for value in list(setting.values())[:2])])
            yield SuiteRun(
                f"sweep/{name}", base, setting, selector, variant=_variant(selector), weights_of="sweep/dense-recall"
            )


def _finals() -> Iterator[SuiteRun]:
    def run(name: str, selector: str, fields: Fields, setting: Fields | None = None) -> SuiteRun:
        name, variant = f"final-{name}-{selector}", _variant(selector)
        return SuiteRun(name, fields, setting or {}, None, selector, variant, "dense-recall")

    for k, selector in itertools.product(KS, SELECTED):
        yield run(f"k{k}", selector, {"selector.k": k, "seeds": FINAL_SEEDS})
    # Several of its settings have no error left, and the one chosen is slow.
    fast: Fields = {"optimizer.learning_rate": RATES[-1]}
    for k in KS:
        yield run(f"fast-k{k}", "kl", {"selector.k": k, "seeds": FINAL_SEEDS}, fast)
    for selector in ALONE:
        yield run("indexer", selector, {"trained": "indexer", "seeds": FEWER_SEEDS}, fast)


SUITE = Suite(
    recipe=experiment.RECIPE,
    presets={"pairs": pairs},
    chosen_by="valid_loss",
    shown=("test_accuracy", "valid_accuracy"),
    report=report.make,
)

if __name__ == "__main__":
    console.run(lambda arguments: command.main(SUITE, arguments))
