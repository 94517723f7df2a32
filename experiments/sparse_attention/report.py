"""The tables and the figure of selectors: `python -m experiments.sparse_attention.report DIR`.

It writes DIR/table.md and DIR/figures/keys: accuracy against the keys that have a gradient.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from experiments.core import console
from experiments.core.kinds import Fields
from experiments.core.report import making, markdown
from experiments.core.report.frame import final, first_where, history, intervals
from experiments.core.report.presentation import Presentation
from experiments.core.report.results import Run
from experiments.core.report.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, bars
from experiments.sparse_attention.selectors import KINDS, SELECTORS

NAMES = {
    "dense": "dense attention",
    "straight_through": "hard, gradient of the relaxed mask",
    "sigmoid": "hard, gradient of a sigmoid",
    "best_sigmoid": "hard, gradient of a sigmoid to the best keys",
    "best": "hard, gradient of one to the best keys",
    "kl": "taught: dense attention (KL)",
    "kl_sparse": "taught: dense, then sparse attention (KL)",
    "support": "relaxed, fewer and fewer keys",
    "relaxed": "relaxed, lam falling",
    "lapsum": "LapSum, temperature falling",
    "sparsek": "relaxed, one score a key (SparseK)",
    "added": "hard, score added to the logits",
    "frozen": "hard, indexer as it was drawn",
}
_COLOURS = {"straight_through": RED, "support": ORANGE, "best": SKY, "sigmoid": BLUE, "kl": GREEN, "kl_sparse": PURPLE}
_MARKERS = "oosD^vPX*<>hd"
GOOD = 90.0  # the accuracy that `steps to 90 %` waits for
SOLVED = 99.0
_DEFINITIONS = (
    "Mean ± half width of the 95 % t-interval over seeds, each a model of its own. Accuracy in % with the k best keys, "
    "whatever was read in training. *Solved*: seeds with at least 99 %. *Steps to 90 %*: mean over the seeds that get "
    "there, in brackets how many do not; rows are 50 steps apart. *Keys with a weight*, *with a gradient*: of a query, "
    "in training, at its beginning and at its end, of 48.5 on average."
)


_RATE = ", at the rate "


def _method(fields: Fields) -> str:
    """Names the selector, and the rate of one that is shown at two."""
    name, rate = NAMES[fields["selector.name"]], fields["optimizer.learning_rate"]
    return f"{name}{_RATE}{rate:g}" if fields["selector.name"] == "kl" and fields["split"] == "test" else name


PRESENTATION = Presentation(
    experiment="sparse_attention",
    kinds=KINDS,
    method=_method,
    baseline="straight_through",
    order=lambda run: (
        run.fields["task.name"],
        run.fields["task.length"],
        run.fields["trained"],
        list(SELECTORS).index(run.fields["selector.name"]),
        run.fields["selector.k"],
        run.fields["steps"],
        run.name,
    ),
)
load = functools.cache(lambda directory: PRESENTATION.load(directory)[0])  # committed runs do not change


def tables(runs: pd.DataFrame, chosen: frozenset[str]) -> list[str]:
    """Returns the lines of all tables; `chosen` names the runs of the sweep that won."""
    on_test, tried = (runs[runs["split"] == split] for split in ("test", "validation"))
    lines = ["### Test", "", *overview(on_test), _DEFINITIONS, ""] if len(on_test) else []
    for title, group in groups(on_test).items():
        lines += [f"#### {title}", "", *markdown.table(in_full(group), text=1)]
    tried = tried[tried["selector.name"] != "dense"]
    for task, group in tried.groupby("task.name"):
        cells = {
            "selector": PRESENTATION.labels(group["run"]),
            "accuracy, %": "valid_accuracy",
            "loss": "valid_loss",
        }
        lines += markdown.section(f"Validation: {task}", markdown.rows(group, cells, chosen), text=1)
    return lines


def title_of(fields: Fields) -> str:
    """Names what a run is about: `recall`, or `recall, indexer alone`."""
    return fields["task.name"] + (", indexer alone" if fields["trained"] == "indexer" else "")


def groups(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Returns the runs with a selector by their title."""
    selected = runs[runs["selector.name"] != "dense"] if len(runs) else runs
    return dict(list(selected.groupby(selected["run"].map(lambda run: title_of(run.fields)), sort=False)))


def overview(runs: pd.DataFrame) -> list[str]:
    """Returns the lines of a table of accuracies: a row for each selector, a column for each k, and what is trained."""
    cells: dict[tuple[str, str], str] = {}
    columns = list(dict.fromkeys(_column(run) for group in groups(runs).values() for run in group["run"]))
    for run in runs["run"]:
        for column in columns if run.fields["selector.name"] == "dense" else [_column(run)]:
            cells[_method(run.fields), column] = markdown.plus_minus(run.summary["final"]["test_accuracy"])
    names = list(NAMES.values())
    cells = dict(sorted(cells.items(), key=lambda cell: names.index(cell[0][0].partition(_RATE)[0])))
    return markdown.table(markdown.pivot("accuracy, %", cells), text=1)


def _column(run: Run) -> str:
    return title_of(run.fields).replace(run.fields["task.name"], f"k = {run.fields['selector.k']}")


def in_full(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of the runs with everything that was measured."""
    accuracies = final(runs, "test_accuracy")
    cells = {
        "selector": runs["run"].map(lambda run: _method(run.fields)),
        "k": runs["selector.k"].astype(str),
        "accuracy, %": "test_accuracy",
        "solved": (accuracies >= SOLVED).sum(axis=1).astype(str) + " of " + accuracies.count(axis=1).astype(str),
        f"steps to {GOOD:g} %": runs["run"].map(steps_to_reach),
        "keys with a weight": runs["run"].map(functools.partial(first_and_last, metric="keys_read")),
        "with a gradient": runs["run"].map(functools.partial(first_and_last, metric="keys_with_gradient")),
    }
    return markdown.rows(runs, cells).drop(columns=["diverged"])


def steps_to_reach(run: Run) -> str:
    """Writes the mean over seeds of the first row with an accuracy of 90 %, and how many never have one."""
    reached = first_where(history(run, "test_accuracy", "step") >= GOOD)
    never = reached.isna().sum()
    return "never" if never == len(reached) else f"{reached.mean():.0f}{f' ({never})' if never else ''}"


def first_and_last(run: Run, metric: str) -> str:
    """Writes the mean over seeds of a metric in the first and the last row."""
    means = history(run, metric, "step").mean(axis=1)
    first, last = f"{means.iloc[0]:.1f}", f"{means.iloc[-1]:.1f}"
    return first if first == last else f"{first} to {last}"


def figures(runs: pd.DataFrame) -> dict[str, Figure]:
    """Draws recall's accuracy against the keys that have a gradient, for the two smallest k."""
    on_test = runs[(runs["split"] == "test") & (runs["trained"] == "all") & (runs["task.name"] == "recall")]
    group = groups(on_test).get("recall", on_test)
    ks = sorted(set(group["selector.k"]))[:2]
    return {"keys": keys(group, ks)} if len(ks) == 2 else {}


def keys(runs: pd.DataFrame, ks: Sequence[int]) -> Figure:
    """Draws a point for each selector, one panel for each k: mean over training of the keys with a gradient."""
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    handles: dict[str, Any] = {}
    for axes, k in zip(figure.subplots(1, len(ks), sharey=True), ks, strict=True):
        at_k = runs[runs["selector.k"] == k]
        accuracies = intervals(final(at_k, "test_accuracy"))
        for name, run in at_k["run"].items():
            selector = run.fields["selector.name"]
            touched = max(float(history(run, "keys_with_gradient", "step").mean(axis=None)), 0.1)
            look = {"marker": _MARKERS[list(SELECTORS).index(selector) % len(_MARKERS)], "markersize": 7}
            colour = _COLOURS.get(selector, GREY)
            handles[_method(run.fields)] = bars(axes, [touched], [accuracies[name]], (colour, "none"), **look)
        axes.set(xscale="log", title=f"k = {k}", xlabel="keys of a query with a gradient, of 48.5")
        axes.set_xticks([0.1, 1.0, 2.0, 5.0, 10.0, 20.0, 48.5], ["none", "1", "2", "5", "10", "20", "all"], minor=False)
        axes.minorticks_off()
    figure.axes[0].set_ylabel("accuracy with the k best keys, %")
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=3, fontsize=9)
    return figure


def blocks(results: Path) -> dict[str, list[str]]:
    """Returns the tables of the page, by the name of its block."""
    runs = load(results / "sparse_attention")
    if runs.empty:
        return {}
    on_test = runs[runs["split"] == "test"]
    at_one = groups(on_test)["recall"].query("`selector.k` == 1")
    return {
        "sparse attention": [*overview(on_test), *markdown.table(in_full(at_one).drop(columns=["seeds"]), text=1)[:-1]]
    }


make = functools.partial(making.make, PRESENTATION, tables, figures)  # takes the directory of the runs

if __name__ == "__main__":
    console.run(
        lambda arguments: making.on_directory("experiments.sparse_attention.report", making.DOC, make, arguments)
    )
