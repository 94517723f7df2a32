"""Trains all runs of a preset, makes tables and figures: `python -m experiments.sparse_attention.suite --out=DIR`.

pairs  dense models, from which every selector goes on. Rate and strength of each are chosen on another seed and other
       examples: of recall at k = 2, 16 tries each; of several at k = 4 and text at k = 8, twelve tries each. Then ten
       seeds of recall, of three times the steps, of several; five of recall at k = 16, of the indexer alone, and
       of text in windows of 128, 256 and 512
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from experiments.core import console
from experiments.core.suite import command
from experiments.core.suite.plan import Suite, SuiteRun
from experiments.sparse_attention import experiment, report

Fields = dict[str, Any]

SWEEP_SEEDS, FINAL_SEEDS, FEWER_SEEDS = (100,), tuple(range(10)), tuple(range(5))
RATES = (1e-3, 3e-3, 1e-2, 3e-2)
# The keys that are read at test; rate and strength are chosen at the first.
KS = {"recall": (2, 1), "several": (4,), "text": (8,)}
MANY_K = 16
# What the further comparisons are about: the ways that learn something from the task or a teacher, and none.
FEWER = ("straight_through", "sigmoid", "best_sigmoid", "best", "kl", "support", "frozen")
# Longer windows of text, at what was chosen for 128: how many in a batch, which has as many characters, and for whom.
WINDOWS = {
    256: (4, ("longer", "straight_through", "sigmoid", "best_sigmoid", "kl", "support", "frozen")),
    512: (2, ("longer", "straight_through", "kl")),
}
SLOW = ("best", "kl_sparse", "relaxed", "lapsum")  # three times the steps, as 300 leave errors
ALONE = ("straight_through", "sigmoid", "best", "kl", "support")  # the indexer alone is trained, too


class Strength(NamedTuple):
    """The field that is chosen with the rate, and its values; where a lam falls, its start."""

    field: str
    values: tuple[float, ...]


_LAM = "selector.lam.start"
STRENGTHS = {
    "straight_through": Strength(_LAM, (0.3, 1.0, 3.0, 10.0)),
    "sigmoid": Strength(_LAM, (0.03, 0.1, 0.3, 1.0)),
    "best_sigmoid": Strength(_LAM, (0.03, 0.1, 0.3, 1.0)),
    "best": Strength("selector.spare", (2, 4, 8, 16)),
    "kl": Strength(_LAM, (0.3, 1.0, 3.0, 10.0)),
    "kl_sparse": Strength(_LAM, (0.3, 1.0, 3.0, 10.0)),
    "support": Strength(_LAM, (3.0, 6.0, 14.0, 30.0)),
    "relaxed": Strength(_LAM, (1.0, 4.0, 16.0, 64.0)),
    "lapsum": Strength(_LAM, (0.5, 2.0, 8.0, 32.0)),
    "sparsek": Strength(_LAM, (0.1, 0.3, 1.0, 3.0)),
    "added": Strength(_LAM, (1.0, 4.0, 16.0, 64.0)),
}
SELECTED = (*STRENGTHS, "frozen")
_FALLING = ("support", "relaxed", "lapsum")  # the lam of others ends where it starts


def pairs() -> list[SuiteRun]:
    """Returns dense models, sweeps on validation, and the final runs."""
    text = _of_task("text", FEWER_SEEDS, ("longer", *FEWER))
    return [*_recall(), *_of_task("several", FINAL_SEEDS), *text, *_windows()]


def _dense(name: str, seeds: Sequence[int], task: str = "recall", fields: Fields | None = None) -> SuiteRun:
    before = name.replace(task, "recall") if task == "several" else None
    return SuiteRun(name, {"seeds": seeds, **(fields or {})}, variant=_variant("dense", task), weights_of=before)


def _variant(selector: str, task: str) -> str:
    return f"selector={selector}" + (f",task={task}" if task != "recall" else "")


def settings(selector: str, rates: Sequence[float] = RATES) -> Iterator[Fields]:
    """Yields the settings that a selector chooses from."""
    if selector not in STRENGTHS:
        yield from ({"optimizer.learning_rate": rate} for rate in rates)
        return
    field, values = STRENGTHS[selector]
    for rate, value in itertools.product(rates, values):
        fields: Fields = {"optimizer.learning_rate": rate, field: value}
        if field == _LAM and selector not in _FALLING:
            fields["selector.lam.end"] = value
        if selector == "support":  # whose lam is a number of slots
            fields["selector.spare"] = int(value)
        yield fields


def _sweep(task: str, selector: str, tries: Iterator[Fields]) -> Iterator[SuiteRun]:
    base: Fields = {"split": "validation", "seeds": SWEEP_SEEDS} | _k(selector, KS[task][0])
    choice = selector if task == "recall" else f"{task}-{selector}"
    for setting in tries:
        name = "-".join([choice, *(f"{value:g}" for value in list(setting.values())[:2])])
        variant, dense = _variant(selector, task), f"sweep/dense-{task}"
        yield SuiteRun(f"sweep/{name}", base, setting, choice, variant=variant, weights_of=dense)


def _final(name: str, selector: str, k: int, fields: Fields, task: str = "recall", of: str = "") -> SuiteRun:
    """Returns a run of ten seeds, unless `fields` says how many, in the setting that won, from the dense run `of`."""
    choice = selector if task == "recall" else f"{task}-{selector}"
    fields, name = {"seeds": FINAL_SEEDS, **_k(selector, k), **fields}, f"final-{name}-{selector}"
    variant, dense = _variant(selector, task), of or f"dense-{task}"
    return SuiteRun(name, fields, best_of=choice, variant=variant, weights_of=dense)


def _k(selector: str, k: int) -> Fields:
    """Returns the number of keys as a field of the config, which dense attention does not read."""
    return {} if selector == "longer" else {"selector.k": k}


def _recall() -> Iterator[SuiteRun]:
    yield _dense("sweep/dense-recall", SWEEP_SEEDS, fields={"split": "validation"})
    yield _dense("dense-recall", FINAL_SEEDS)
    for selector in SELECTED:
        yield from _sweep("recall", selector, settings(selector))
    for k, selector in itertools.product(KS["recall"], SELECTED):
        yield _final(f"k{k}", selector, k, {})
    for selector in ALONE:
        yield _final("indexer", selector, KS["recall"][0], {"trained": "indexer", "seeds": FEWER_SEEDS})
    for selector in FEWER:
        yield _final(f"k{MANY_K}", selector, MANY_K, {"seeds": FEWER_SEEDS})
    for selector in SLOW:
        yield _final("slow-k1", selector, 1, {"steps": 900})


def _of_task(task: str, seeds: Sequence[int], selectors: Sequence[str] = FEWER) -> Iterator[SuiteRun]:
    yield _dense(f"sweep/dense-{task}", SWEEP_SEEDS, task, {"split": "validation"})
    yield _dense(f"dense-{task}", seeds, task)
    for selector in selectors:
        yield from _sweep(task, selector, settings(selector, RATES[1:]))
    for k, selector in itertools.product(KS[task], selectors):
        yield _final(f"{task}-k{k}", selector, k, {"seeds": seeds}, task)


def _windows() -> Iterator[SuiteRun]:
    k = KS["text"][0]
    for length, (batch_size, selectors) in WINDOWS.items():
        fields: Fields = {"task.length": length, "batch_size": batch_size}
        yield _dense(dense := f"dense-text-{length}", FEWER_SEEDS, "text", fields)
        for selector in selectors:
            yield _final(f"text-{length}-k{k}", selector, k, {"seeds": FEWER_SEEDS} | fields, "text", dense)


SUITE = Suite(
    recipe=experiment.RECIPE,
    presets={"pairs": pairs},
    chosen_by="valid_loss",
    shown=("test_accuracy", "valid_accuracy"),
    report=report.make,
)

if __name__ == "__main__":
    console.run(lambda arguments: command.main(SUITE, arguments))
