"""The table of masks with frozen weights: `python -m experiments.learned_masks.report DIR` writes DIR/table.md."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from experiments.core import console
from experiments.core.kinds import Fields
from experiments.core.report import making, markdown
from experiments.core.report.presentation import Presentation
from experiments.core.report.results import Run
from experiments.learned_masks.experiment import KINDS, METHODS, PATTERNS

_METRIC = "test_accuracy"
NAMES = {
    "dense": "no mask",
    "magnitude": "magnitude",
    "wanda": "Wanda",
    "relaxed": "relaxed mask of scores",
    "learned": "hard mask of scores, straight through",
    "gumbel": "Gumbel-sigmoid gates",
}
_PATTERN = {"2:4": "2:4", "half": "50 % of each matrix", "fifth": "20 % of each matrix"}  # what is kept
_DEFINITIONS = (
    "Mean ± half width of the 95 % t-interval over seeds; one number without an interval where nothing is random. "
    "Weights are frozen, and so is the head. Of gates and relaxed masks the hard mask is evaluated."
)


def _method(fields: Fields) -> str:
    return NAMES[fields["mask.method"]]


def _pattern(run: Run) -> str:
    return "all" if run.fields["mask.method"] == "dense" else _PATTERN[run.fields["mask.pattern"]]


PRESENTATION = Presentation(
    experiment="learned_masks",
    kinds=KINDS,
    method=_method,
    baseline="gumbel",
    order=lambda run: (
        list(METHODS).index(run.fields["mask.method"]),
        list(PATTERNS).index(run.fields["mask.pattern"]),
        run.name,
    ),
    distance=lambda fields, of_gates: fields["mask.pattern"] != of_gates["mask.pattern"],
)


def tables(runs: Sequence[Run], chosen: frozenset[str]) -> list[str]:
    """Returns the lines of all tables; `chosen` names the runs of the sweep that won."""
    lines = []
    if final := [run for run in runs if run.config["split"] == "test"]:
        first = [{"mask": _method(run.fields), "kept": _pattern(run)} for run in final]
        columns = {"accuracy, %": markdown.value(_METRIC), "minus gates": _minus_gates(final)}
        lines += [*markdown.section("Test", markdown.rows(first, final, columns)), _DEFINITIONS, ""]
    if tried := [run for run in runs if run.config["split"] == "validation"]:
        first = [{"mask": label} for label in PRESENTATION.labels(tried)]
        columns = {"accuracy, %": markdown.value("valid_accuracy"), "loss": markdown.value("valid_loss")}
        lines += markdown.section("Validation", markdown.rows(first, tried, columns, chosen), text=1)
    return lines


def _minus_gates(final: Sequence[Run]) -> Callable[[Run], str]:
    """Returns a column with the difference from the gates of the same budget, for masks that are learned."""
    cell = markdown.minus_reference(PRESENTATION.references(final), _METRIC)
    return lambda run: cell(run) if len(run.summary["seeds"]) > 1 else "-"


def _on_test(final: Sequence[Run]) -> list[str]:
    """Returns the lines of the accuracies, and of their differences from the gates', by mask and pattern."""
    learned = [run for run in final if run.fields["mask.method"] in ("relaxed", "learned")]
    lines = []
    for name, shown, cell in (("mask", final, markdown.value(_METRIC)), ("minus gates", learned, _minus_gates(final))):
        cells = ((_method(run.fields), _pattern(run), cell(run)) for run in shown)
        lines += markdown.table(markdown.pivot(name, cells), text=1)
    return lines


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
