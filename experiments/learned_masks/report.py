"""The table of masks with frozen weights: `python -m experiments.learned_masks.report DIR` writes DIR/table.md."""

import functools
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from experiments.core import console
from experiments.core.kinds import Fields
from experiments.core.report import making, markdown
from experiments.core.report.frame import final, minus
from experiments.core.report.presentation import Presentation
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


def tables(runs: pd.DataFrame, chosen: frozenset[str]) -> list[str]:
    """Returns the lines of all tables; `chosen` names the runs of the sweep that won."""
    lines = []
    on_test, tried = (runs[runs["split"] == split] for split in ("test", "validation"))
    if len(on_test):
        lines += ["### Test", "", *_on_test(on_test), _DEFINITIONS, ""]
    if len(tried):
        cells = {
            "mask": PRESENTATION.labels(tried["run"]),
            "accuracy, %": "valid_accuracy",
            "loss": "valid_loss",
        }
        lines += markdown.section("Validation", markdown.rows(tried, cells, chosen), text=1)
    return lines


def _on_test(runs: pd.DataFrame) -> list[str]:
    """Returns a sentence on what is left of the gain, and a table for each budget, whose first row has no mask."""
    cells: dict[str, Any] = {"": runs["mask.method"].map(NAMES)}
    cells |= {name: markdown.value(runs, metric) for name, metric in _COLUMNS.items()}
    nearest, patterns = PRESENTATION.references(runs["run"]), runs["mask.pattern"]
    references = {  # at the same budget alone
        name: other if other and other.fields["mask.pattern"] == patterns[name] else None
        for name, other in nearest.items()
    }
    over = minus(runs, references, _HEAD)
    cells["minus edge-popup"] = markdown.cells(over, signed=True).where(runs["seeds"] > 1, "-")
    rows = pd.DataFrame(cells)
    lines = _what_is_left(runs)
    for pattern, kept in _PATTERN.items():
        shown = rows[(runs["mask.method"] == "dense") | (runs["mask.pattern"] == pattern)]
        lines += markdown.table(shown.rename(columns={"": f"{kept} kept"}), text=1)
    return lines


def _what_is_left(runs: pd.DataFrame) -> list[str]:
    """Returns a sentence on the gain of the hard mask of scores over no mask, in all columns, if they are there."""
    masked = runs[(runs["mask.method"] == "learned") & (runs["mask.pattern"] == "fifth")]
    if masked.empty or _HEAD not in masked["run"].iloc[0].finals:
        return []
    dense = runs[runs["mask.method"] == "dense"]  # one number, whatever the seed
    gains = (final(masked, name) - final(dense, name).mean().mean() for name in _METRICS.values())
    as_it_is, norms, head = (markdown.cells(gain, signed=True).iloc[0] for gain in gains)
    return [
        f"**With {_PATTERN['fifth']} kept, the accuracy of the hard mask of scores minus that of no mask is {as_it_is} "
        f"as it is, {norms} with norms restored, and {head} with the head trained again for both.**",
        "",
    ]


def figures(runs: pd.DataFrame) -> dict[str, Figure]:
    """Returns no figure: sixteen numbers are read faster in a table."""
    return {}


def blocks(results: Path) -> dict[str, list[str]]:
    """Returns the tables of the page, by the name of their block."""
    runs = PRESENTATION.load(results / "learned_masks")[0]
    return {"learned masks": _on_test(runs[runs["split"] == "test"])[:-1]} if len(runs) else {}


make = functools.partial(making.make, PRESENTATION, tables, figures)  # takes the directory of the runs

if __name__ == "__main__":
    console.run(lambda arguments: making.on_directory("experiments.learned_masks.report", making.DOC, make, arguments))
