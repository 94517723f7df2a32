"""Trains all runs of a preset, makes tables and figure: `python -m experiments.sparse_attention.suite --out=DIR`.

pairs  dense models, from which every selector goes on. Rate and strength of each are chosen at recall with k = 2 on
       another seed and other examples, six tries each; then all train at every k
text   these, and on text: the rate is chosen again
longer these, and recall in 256 tokens
demo   a dense model and three selectors, nothing chosen; two minutes
"""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from experiments.core import console
from experiments.core.suite import command
from experiments.core.suite.plan import Suite, SuiteRun
from experiments.sparse_attention import experiment, report
from experiments.sparse_attention.report import PATIENT

Fields = dict[str, Any]

SWEEP_SEEDS, FINAL_SEEDS, FEWER_SEEDS = (100,), tuple(range(10)), tuple(range(5))
RATES = (1e-3, 3e-3)
K_OF_CHOICE, KS = 2, (2, 1)  # in the order of training
K_OF_TEXT = 4
TAUGHT = ("kl", "kl_sparse")
ALONE = ("straight_through", "sigmoid", "best", "kl", "support")  # of which the indexer is trained alone, too
LONG: Fields = {"task.length": 256, "batch_size": 4}


class Strength(NamedTuple):
    """The field that is chosen with the rate, and its values; where a lam falls, its start."""

    field: str
    values: tuple[float, ...]


_LAM = "selector.lam.start"
STRENGTHS = {
    "straight_through": Strength(_LAM, (0.3, 1.0, 3.0)),
    "sigmoid": Strength(_LAM, (0.1, 0.3, 1.0)),
    "best": Strength("selector.spare", (2, 4, 8)),
    "kl": Strength(_LAM, (1.0, 3.0, 10.0)),
    "kl_sparse": Strength(_LAM, (1.0, 3.0, 10.0)),
    "support": Strength(_LAM, (3.0, 6.0, 14.0)),
    "relaxed": Strength(_LAM, (1.0, 4.0, 16.0)),
    "lapsum": Strength(_LAM, (0.5, 2.0, 8.0)),
    "sparsek": Strength(_LAM, (0.3, 1.0, 3.0)),
    "added": Strength(_LAM, (1.0, 4.0, 16.0)),
    "added_falling": Strength(_LAM, (3.0, 6.0, 14.0)),
}
SELECTED = (*STRENGTHS, "frozen")
_CONSTANT = ("straight_through", "sigmoid", "kl", "kl_sparse", "sparsek", "added")  # their lam ends where it starts
_ROOMY = ("support", "added_falling")  # the lam of these is a number of slots


def pairs() -> list[SuiteRun]:
    """Returns dense models, sweeps on validation, and the final runs of recall."""
    return [*_dense("recall", FINAL_SEEDS), *_sweep(), *_finals()]


def text() -> list[SuiteRun]:
    """Returns the runs of `pairs`, and those of text."""
    return [*pairs(), *_dense("text", FEWER_SEEDS), *_on_text()]


def longer() -> list[SuiteRun]:
    """Returns the runs of `text`, and recall in more tokens, which the dense model takes more steps to learn."""
    runs = text()
    dense = SuiteRun("dense-long", LONG | {"seeds": FEWER_SEEDS}, variant=_variant("dense"))
    return [*runs, dense, *(_final("long", selector, LONG, FEWER_SEEDS, weights=dense.name) for selector in SELECTED)]


def demo() -> list[SuiteRun]:
    """Returns a dense model, and what three selectors make of it, at the strengths of the config."""
    dense = SuiteRun("dense-recall", {}, variant=_variant("dense"))
    names = ("straight_through", "kl", "frozen")
    return [dense, *(SuiteRun(f"final-{name}", {}, variant=_variant(name), weights_of=dense.name) for name in names)]


def _variant(selector: str, task: str = "recall") -> str:
    return f"selector={selector},task={task}"


def _dense(task: str, seeds: tuple[int, ...]) -> Iterator[SuiteRun]:
    variant = _variant("dense", task)
    yield SuiteRun(f"sweep/dense-{task}", {"split": "validation", "seeds": SWEEP_SEEDS}, variant=variant)
    yield SuiteRun(f"dense-{task}", {"seeds": seeds}, variant=variant)


def settings(selector: str) -> Iterator[Fields]:
    """Yields the settings that a selector chooses from."""
    strength = STRENGTHS.get(selector)
    for rate, value in itertools.product(RATES, strength.values if strength else (None,)):
        fields: Fields = {"optimizer.learning_rate": rate}
        if strength:
            fields[strength.field] = value
        if selector in _CONSTANT:
            fields["selector.lam.end"] = value
        if selector in _ROOMY:
            fields["selector.spare"] = int(value or 0)
        yield fields


def _sweep() -> Iterator[SuiteRun]:
    base: Fields = {"split": "validation", "seeds": SWEEP_SEEDS, "selector.k": K_OF_CHOICE}
    for selector in SELECTED:
        for setting in settings(selector):
            name = "-".join([selector, *(f"{value:g}" for value in list(setting.values())[:2])])
            yield SuiteRun(
                f"sweep/{name}", base, setting, selector, variant=_variant(selector), weights_of="sweep/dense-recall"
            )


def _final(
    name: str, selector: str, fields: Fields, seeds: tuple[int, ...], task: str = "recall", weights: str = ""
) -> SuiteRun:
    return SuiteRun(
        f"final-{name}-{selector}",
        fields | {"seeds": seeds},
        best_of=selector,
        variant=_variant(selector, task),
        weights_of=weights or f"dense-{task}",
    )


def _finals() -> Iterator[SuiteRun]:
    for k, selector in itertools.product(KS, SELECTED):
        yield _final(f"k{k}", selector, {"selector.k": k}, FINAL_SEEDS)
    for selector in TAUGHT:
        yield _final("patient", selector, {"steps": PATIENT, "checkpoint_every": PATIENT}, FEWER_SEEDS)
    for selector in ALONE:
        yield _final("indexer", selector, {"trained": "indexer"}, FEWER_SEEDS)


def _on_text() -> Iterator[SuiteRun]:
    for selector in SELECTED:
        variant = _variant(selector, "text")
        base: Fields = {"split": "validation", "seeds": SWEEP_SEEDS, "selector.k": K_OF_TEXT}
        for rate in RATES:
            yield SuiteRun(
                f"sweep/text-{selector}-{rate:g}", base, {"optimizer.learning_rate": rate},
                candidate_for=f"{selector}, text", best_of=selector, variant=variant, weights_of="sweep/dense-text",
            )  # fmt: skip
        fields: Fields = {"seeds": FEWER_SEEDS, "selector.k": K_OF_TEXT}
        yield SuiteRun(
            f"final-text-{selector}", fields, best_of=f"{selector}, text", variant=variant, weights_of="dense-text"
        )


SUITE = Suite(
    recipe=experiment.RECIPE,
    presets={"pairs": pairs, "text": text, "longer": longer, "demo": demo},
    chosen_by="valid_loss",
    shown=("test_accuracy", "valid_accuracy"),
    report=report.make,
)

if __name__ == "__main__":
    console.run(lambda arguments: command.main(SUITE, arguments))
