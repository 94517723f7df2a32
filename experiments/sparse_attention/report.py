"""The tables and the figures of selectors: `python -m experiments.sparse_attention.report DIR`.

It writes DIR/table.md and, in DIR/figures, recall's accuracy and text's bits against the keys that have a gradient.
"""

import functools
from collections.abc import Mapping
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
    "longer": "dense attention, trained on",
    "straight_through": "hard, gradient of the relaxed mask",
    "sigmoid": "hard, gradient of a sigmoid",
    "best_sigmoid": "hard, a sigmoid to the best keys, its threshold held",
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
DENSE = ("dense", "longer")  # which have no k
GOOD = 90.0  # the accuracy that `steps to 90 %` waits for
SOLVED = 99.0
METRICS = {"test_accuracy": "accuracy, %", "test_bits": "bits a character"}
RECALL = "recall of 64 tokens, 300 steps"
_DEFINITIONS = (
    "Mean ± half width of the 95 % t-interval over seeds, each a model of its own. Accuracy in % with the k best keys, "
    "whatever was read in training. *Solved*: seeds with at least 99 %. *Steps to 90 %*: mean over the seeds that get "
    "there, in brackets how many do not; rows are 50 steps apart. *Keys with a weight*, *with a gradient*: of a query, "
    "in training, at its beginning and at its end, of 48.5 on average in recall."
)


def _method(fields: Fields) -> str:
    return NAMES[fields["selector.name"]]


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
    lines = ["### Test", "", _DEFINITIONS, ""] if len(on_test) else []
    for title, group in groups(on_test).items():
        dense = on_test[(on_test["selector.name"] == "dense") & (on_test["run"].map(_data) == title.partition(",")[0])]
        lines += [f"#### {title}", "", *markdown.table(in_full(pd.concat([dense, group])), text=1)]
    tried = tried[tried["selector.name"] != "dense"]
    for task, group in tried.groupby("task.name"):
        cells = {
            "selector": PRESENTATION.labels(group["run"]),
            "accuracy, %": "valid_accuracy",
            "loss": "valid_loss",
        }
        lines += markdown.section(f"Validation: {task}", markdown.rows(group, cells, chosen), text=1)
    return lines


def _data(run: Run) -> str:
    """Names what a run is about: `recall of 64 tokens`."""
    return f"{run.fields['task.name']} of {run.fields['task.length']} tokens"


def title_of(run: Run) -> str:
    """Names what a run with a selector is about, and what it trains for how long."""
    return f"{_data(run)}, {run.fields['steps']} steps" + (", indexer alone" if _alone(run) else "")


def _alone(run: Run) -> bool:
    return bool(run.fields["trained"] == "indexer")


def groups(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Returns the runs with a selector by their title."""
    selected = runs[runs["selector.name"] != "dense"] if len(runs) else runs
    return dict(list(selected.groupby(selected["run"].map(title_of), sort=False)))


def overview(runs: pd.DataFrame, columns: Mapping[str, str], metric: str = "test_accuracy") -> list[str]:
    """Returns the lines of a table: a row for each selector, the metric in a column for each of some titles and ks.

    Args:
      runs: on test.
      columns: by its heading, what `_place` says of a column's runs.
      metric: of the last row.
    """
    cells: dict[tuple[str, str], str] = {}
    for heading, place in columns.items():
        for run in runs["run"]:
            of_dense = run.fields["selector.name"] in DENSE and place.startswith(_data(run))
            if of_dense or _place(run) == place:
                cells[_method(run.fields), heading] = markdown.plus_minus(run.summary["final"][metric])
    names = list(NAMES.values())
    cells = dict(sorted(cells.items(), key=lambda cell: names.index(cell[0][0])))
    return markdown.table(markdown.pivot(METRICS[metric], cells), text=1)


def _place(run: Run) -> str:
    return f"{title_of(run)}, k = {run.fields['selector.k']}"


def in_full(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of the runs with everything that was measured."""
    accuracies, is_text = final(runs, "test_accuracy"), (runs["task.name"] == "text").all()
    cells: dict[str, Any] = {
        "selector": runs["run"].map(lambda run: _method(run.fields)),
        "k": runs["selector.k"].astype(str).where(~runs["selector.name"].isin(DENSE), "-"),
    }
    if is_text:
        cells |= {METRICS["test_bits"]: "test_bits"}
    cells |= {METRICS["test_accuracy"]: "test_accuracy"}
    if not is_text:
        solved = (accuracies >= SOLVED).sum(axis=1).astype(str) + " of " + accuracies.count(axis=1).astype(str)
        cells |= {"solved": solved, f"steps to {GOOD:g} %": runs["run"].map(steps_to_reach)}
    for heading, metric in (("keys with a weight", "keys_read"), ("with a gradient", "keys_with_gradient")):
        cells[heading] = runs["run"].map(functools.partial(first_and_last, metric=metric))
    return markdown.rows(runs, cells).drop(columns=["diverged"])


def steps_to_reach(run: Run) -> str:
    """Writes the mean over seeds of the first row with an accuracy of 90 %, and how many never have one."""
    return markdown.reached(first_where(history(run, "test_accuracy", "step") >= GOOD))


def first_and_last(run: Run, metric: str) -> str:
    """Writes the mean over seeds of a metric in the first and the last row that has one: seeds may diverge."""
    means = history(run, metric, "step").mean(axis=1).dropna()
    first, last = f"{means.iloc[0]:.1f}", f"{means.iloc[-1]:.1f}"
    return first if first == last else f"{first} to {last}"


def figures(runs: pd.DataFrame) -> dict[str, Figure]:
    """Draws recall's accuracy against the keys that have a gradient, at k of 1 and 2, and the bits of text."""
    on_test = groups(runs[runs["split"] == "test"])
    made = {}
    if len(recall := on_test.get(RECALL, runs[:0])):
        made["keys"] = keys({f"k = {k}": recall[recall["selector.k"] == k] for k in (1, 2)}, "test_accuracy")
    texts = {title: group for title, group in on_test.items() if title.startswith("text")}
    if texts:
        made["text"] = keys(texts, "test_bits")
    return made


def keys(panels: Mapping[str, pd.DataFrame], metric: str) -> Figure:
    """Draws a point for each selector in each panel: the metric against keys with a gradient, a mean over training."""
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    handles: dict[str, Any] = {}
    for axes, (title, runs) in zip(
        figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels.items(), strict=True
    ):
        numbers, most = intervals(final(runs, metric)), float(runs["task.length"].iloc[0])
        for name, run in runs["run"].items():
            selector = run.fields["selector.name"]
            if selector in DENSE:
                handles[_method(run.fields)] = axes.axhline(numbers[name]["mean"], color=GREY, linestyle="dashed")
                continue
            touched = max(float(history(run, "keys_with_gradient", "step").mean(axis=None)), 0.1)
            most = max(most, touched)
            look = {"marker": _MARKERS[list(SELECTORS).index(selector) % len(_MARKERS)], "markersize": 7}
            colour = _COLOURS.get(selector, GREY)
            handles[_method(run.fields)] = bars(axes, [touched], [numbers[name]], (colour, "none"), **look)
        axes.set(xscale="log", title=title, xlabel="keys of a query with a gradient")
        axes.set_xticks([0.1, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0], ["none", "1", "2", "5", "10", "20", "50", "100"])
        axes.minorticks_off()
    figure.axes[0].set_ylabel(f"{METRICS[metric]}, with the k best keys")
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=3, fontsize=9)
    return figure


def blocks(results: Path) -> dict[str, list[str]]:
    """Returns the tables of the page, by the name of its block."""
    runs = load(results / "sparse_attention")
    if runs.empty:
        return {}
    on_test = runs[runs["split"] == "test"]
    at_one = groups(on_test)[RECALL].query("`selector.k` == 1")
    learned = {f"k = {k}": f"{RECALL}, k = {k}" for k in (1, 2)}
    longer = {"k = 1, 900 steps": "recall of 64 tokens, 900 steps, k = 1"}
    alone = {"k = 2, indexer alone": f"{RECALL}, indexer alone, k = 2"}
    several = {"several, k = 4": "several of 64 tokens, 300 steps, k = 4"}
    text = {f"{n} characters": f"text of {n} tokens, 600 steps, k = 8" for n in (128, 256, 512)}
    many = on_test[on_test["selector.name"].isin(set(runs[runs["selector.k"] == 16]["selector.name"]) | {"dense"})]
    return {
        "sparse attention": [
            *overview(on_test, learned | longer | alone),
            *markdown.table(in_full(at_one).drop(columns=["seeds", "k"], errors="ignore"), text=1)[:-1],
        ],
        "sparse attention keys": overview(many, learned | {"k = 16": f"{RECALL}, k = 16"}),
        "sparse attention tasks": [*overview(on_test, several), *overview(on_test, text, "test_bits")],
    }


make = functools.partial(making.make, PRESENTATION, tables, figures)  # takes the directory of the runs

if __name__ == "__main__":
    console.run(
        lambda arguments: making.on_directory("experiments.sparse_attention.report", making.DOC, make, arguments)
    )
