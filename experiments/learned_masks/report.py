"""The table of masks with frozen weights: `python -m experiments.learned_masks.report DIR` writes DIR/table.md."""

import functools
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from experiments.core import console
from experiments.core.kinds import Fields
from experiments.core.record.summary import interval
from experiments.core.report import making, markdown
from experiments.core.report.markdown import Numbers
from experiments.core.report.presentation import Presentation
from experiments.core.report.results import Run
from experiments.learned_masks.experiment import KINDS, METHODS, PATTERNS

# The accuracies of a final run, by the name of their column.
_HEAD = "test_accuracy_head"
_METRICS = {"as it is": "test_accuracy", "norms restored": "test_accuracy_norms", "norms and head": _HEAD}
_COLUMNS = {"as it is": "test_accuracy", "own norms": "test_accuracy_own_norms", **_METRICS}
NAMES = {
    "dense": "no mask",
    "magnitude": "magnitude",
    "wanda": "Wanda",
    "relaxed": "relaxed mask of scores",
    "learned": "hard mask of scores, straight through",
    "edge_popup": "edge-popup: hard mask, gradient to all scores",
    "gumbel": "Gumbel-sigmoid gates",
}
_PATTERN = {"2:4": "2:4", "half": "50 % of each matrix", "fifth": "20 % of each matrix"}  # what is kept
_DEFINITIONS = (
    "Accuracy in %: mean ± half width of the 95 % t-interval over seeds; one number without an interval where nothing "
    "is random. Weights are frozen; of gates and relaxed masks the hard mask is evaluated. *As it is*: norms and head "
    "of the whole network. *Own norms*: means and variances of the masked network over 2,048 training images, without "
    "labels. *Norms restored*: those by which each channel has, over these images, the mean and the variance that it "
    "has in the whole network. *Norms and head*: a linear head trained again behind restored norms, as the first one "
    "was. *Minus edge-popup*: the difference in this last accuracy, paired by seed."
)


def _method(fields: Fields) -> str:
    return NAMES[fields["mask.method"]]


PRESENTATION = Presentation(
    experiment="learned_masks",
    kinds=KINDS,
    method=_method,
    baseline="edge_popup",
    order=lambda run: (
        list(METHODS).index(run.fields["mask.method"]),
        list(PATTERNS).index(run.fields["mask.pattern"]),
        run.name,
    ),
    distance=lambda fields, of_baseline: fields["mask.pattern"] != of_baseline["mask.pattern"],
)


def tables(runs: Sequence[Run], chosen: frozenset[str]) -> list[str]:
    """Returns the lines of all tables; `chosen` names the runs of the sweep that won."""
    lines = []
    if final := [run for run in runs if run.config["split"] == "test"]:
        lines += ["### Test", "", *_on_test(final), _DEFINITIONS, ""]
    if tried := [run for run in runs if run.config["split"] == "validation"]:
        first = [{"mask": label} for label in PRESENTATION.labels(tried)]
        columns = {"accuracy, %": markdown.value("valid_accuracy"), "loss": markdown.value("valid_loss")}
        lines += markdown.section("Validation", markdown.rows(first, tried, columns, chosen), text=1)
    return lines


def _on_test(final: Sequence[Run]) -> list[str]:
    """Returns a sentence on what is left of the gain, and a table for each budget, whose first row has no mask."""
    to_edge_popup = markdown.minus_reference(PRESENTATION.references(final), _HEAD)
    columns = {name: markdown.value(metric) for name, metric in _COLUMNS.items()} | {
        "minus edge-popup": lambda run: to_edge_popup(run) if len(run.summary["seeds"]) > 1 else "-",
    }
    lines = _what_is_left(final)
    for pattern, kept in _PATTERN.items():
        shown = [run for run in final if run.fields["mask.method"] == "dense" or run.fields["mask.pattern"] == pattern]
        rows = [
            {f"{kept} kept": _method(run.fields)} | {name: cell(run) for name, cell in columns.items()} for run in shown
        ]
        lines += markdown.table(rows, text=1)
    return lines


def _gain(run: Run, final: Sequence[Run], metric: str) -> Numbers | None:
    """Returns the interval of a metric of a masked network minus that of no mask, which is one number."""
    dense = [other for other in final if other.fields["mask.method"] == "dense" and other.has(metric)]
    whole = [value for other in dense for value in other.final(metric) if value is not None]
    if not (whole and run.has(metric)):
        return None
    return interval([None if value is None else value - whole[0] for value in run.final(metric)])


def _what_is_left(final: Sequence[Run]) -> list[str]:
    """Returns a sentence on the gain of the hard mask of scores over no mask, in all columns, if they are there."""
    of_kind = {(run.fields["mask.method"], run.fields["mask.pattern"]): run for run in final}
    run = of_kind.get(("learned", "fifth"))
    if run is None or not run.has(_HEAD):
        return []
    as_it_is, norms, head = (markdown.signed(_gain(run, final, metric)) for metric in _METRICS.values())
    return [
        f"**With {_PATTERN['fifth']} kept, the accuracy of the hard mask of scores minus that of no mask is {as_it_is} "
        f"as it is, {norms} with norms restored, and {head} with the head trained again for both.**",
        "",
    ]


def figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """Returns no figure: sixteen numbers are read faster in a table."""
    return {}


def blocks(results: Path) -> dict[str, list[str]]:
    """Returns the tables of the page, by the name of their block."""
    runs = PRESENTATION.load(results / "learned_masks")[0]
    return {"learned masks": _on_test([run for run in runs if run.config["split"] == "test"])[:-1]}


make = functools.partial(making.make, PRESENTATION, tables, figures)  # takes the directory of the runs

if __name__ == "__main__":
    console.run(lambda arguments: making.on_directory("experiments.learned_masks.report", making.DOC, make, arguments))
