"""Names, tables, figures and the finding of the task of clusters: `python -m experiments.vmoe_clusters.report DIR`.

It writes DIR/table.md and DIR/figures/excess: the loss minus that of the best assignment, and minus that of the hard
router, against the noise.
"""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from experiments.core import console
from experiments.core.report import making, markdown
from experiments.core.report.finding import Finding, judged
from experiments.core.report.frame import first_where, history, intervals, minus
from experiments.core.report.results import Run
from experiments.core.report.style import GREY, bars
from experiments.vmoe import report as routers
from experiments.vmoe_clusters.kinds import BEST, KINDS, NAMES

REACHED = 0.9  # the share of what the true centres recover
_TUNED_AT = 0.3  # the noise at which the suite chooses
_DEFINITIONS = """
Mean ± half width of the 95 % t-interval over seeds, each a problem of its own; differences are paired by seed. *Loss*:
the part of the variance of the targets that is not explained. *Excess*: loss minus that with the best assignment, where
gates and experts are all that is learned. *Detectable*: a true difference to the hard router this large is found in
80 % of such experiments. *Recovered*: pairs of token and cluster that the cluster's expert takes. *Steps to 90 %*: of
what a hard top-k of the true centres recovers; mean over the seeds that get there, in brackets how many do not. Gates
or logits: what the tokens compete by.
"""

PRESENTATION = dataclasses.replace(
    routers.PRESENTATION,
    experiment="vmoe_clusters",
    kinds=KINDS,
    order=lambda run: (
        run.fields["steps"],
        run.fields["task.noise"],
        NAMES.index(run.fields["router.name"]),
        run.fields["optimizer.learning_rate"],
        run.name,
    ),
    # All have buffers of one size, so names leave it out.
    method=lambda fields: (
        "the best assignment" if fields["router.name"] == BEST else routers.method({**fields, "router.capacity": 0})
    ),
)
load = functools.cache(lambda directory: PRESENTATION.load(directory)[0])  # committed runs do not change


def _references(runs: pd.DataFrame, router: str) -> dict[str, Run | None]:
    """Returns by run the one with `router` to compare it with; None for the best assignment and for that router."""
    best = runs.index[runs["router.name"] == BEST]
    return PRESENTATION.references(runs["run"], router) | dict.fromkeys(best)


def _minus(runs: pd.DataFrame, router: str) -> pd.DataFrame:
    return minus(runs, _references(runs, router), "test_loss")


def steps_to_reach(run: Run) -> "pd.Series[float]":
    """Returns by seed the first step with most of what the true centres recover, NaN where there is none."""
    return first_where(history(run, "test_recovery", "step") >= REACHED * history(run, "test_reachable", "step"))


# Tables --------------------------------------------------------------------------------------------------------------


def tables(runs: pd.DataFrame, chosen: frozenset[str]) -> list[str]:
    """Returns the lines of all tables; `chosen` names the runs of the sweep that won."""
    lines = []
    on_test, tried = (runs[runs["split"] == split] for split in ("test", "validation"))
    if len(on_test):
        lines += ["### Test: loss over that of the best assignment, %", *_DEFINITIONS.split("\n"), *_excesses(on_test)]
    for (steps, noise), group in on_test.groupby(["steps", "task.noise"]):
        reachable = markdown.value(group, "test_reachable").iloc[0]
        lines += [f"### Test at noise {noise:g}, {steps} steps", "", f"The true centres recover {reachable} %.", ""]
        lines += markdown.table(full_rows(group), text=1)
    if len(tried):
        cells = routers.router_cells(PRESENTATION, tried) | {
            "loss, %": "valid_loss",
            "recovered, %": "valid_recovery",
        }
        title = f"Validation: noise {tried['task.noise'].iloc[0]:g}"
        lines += markdown.section(title, markdown.rows(tried, cells, chosen), text=1)
    return lines


def _excesses(runs: pd.DataFrame) -> list[str]:
    """Returns the lines of the excess: a row for each router and lam, a column for each noise and length."""
    excesses: dict[tuple[str, str], str] = {}
    for (steps, noise), group in runs.groupby(["steps", "task.noise"]):
        best = _references(group, BEST)
        cells = markdown.rows(group, routers.router_cells(PRESENTATION, group))
        cells["excess"] = markdown.minus_reference(group, best, "test_loss")
        for _, row in cells[[best[name] is not None for name in cells.index]].iterrows():
            key = row["router"] if row["lam"] == "-" else f"{row['router']}, lam = {row['lam']}"
            where = f"noise {noise:g}, {steps} steps"
            if (key, where) in excesses:
                key = f"{key}, learning rate {row['learning rate']}"
            excesses[key, where] = row["excess"]
    return markdown.table(markdown.pivot("router", excesses), text=1)


def full_rows(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of runs of one noise and length, with everything that was measured."""
    over_hard = _minus(runs, "hard")
    cells = {
        "loss, %": "test_loss",
        "excess": markdown.cells(_minus(runs, BEST), signed=True),
        "minus hard": markdown.cells(over_hard, signed=True),
        "detectable": markdown.detectable_cells(over_hard),
        "recovered, %": "test_recovery",
        "steps to 90 %": [markdown.reached(steps_to_reach(run)) for run in runs["run"]],
        "tokens of an expert": "test_router/support",
    }
    return markdown.rows(runs, routers.router_cells(PRESENTATION, runs) | cells)


# Figures -------------------------------------------------------------------------------------------------------------


def figures(runs: pd.DataFrame) -> dict[str, Figure]:
    """Draws the excess, if there is a best assignment to compare with."""
    on_test = runs[runs["split"] == "test"]
    return {"excess": excess(on_test)} if _minus(on_test, BEST).notna().any(axis=None) else {}


def excess(runs: pd.DataFrame) -> Figure:
    """Draws the loss minus that with the best assignment, and minus that with the hard router, against the noise.

    Each router has a line of means with intervals. Runs longer than the shortest are hollow points without a line.
    """
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    over_best, over_hard = figure.subplots(1, 2)
    shortest, *longer = sorted(set(runs["steps"]))
    handles: dict[str, Any] = {}
    for axes, name in ((over_best, BEST), (over_hard, "hard")):
        over = _minus(runs, name)
        drawn = runs.assign(over=intervals(over), longer=runs["steps"] > shortest)[over.notna().any(axis=1)]
        for (router, is_longer), points in drawn.groupby(["router.name", "longer"], sort=False):
            colour, dashes = routers.LOOKS[router]
            x = points["task.noise"] + 0.003 * (NAMES.index(router) - 3)  # so that intervals do not hide each other
            look, face = (colour, "none" if is_longer else dashes), "white" if is_longer else colour
            marked = {"marker": "o", "markersize": 4, "markerfacecolor": face, "linewidth": 1.4}
            line = bars(axes, x, list(points["over"]), look, **marked)
            handles.setdefault(PRESENTATION.method(points["run"].iloc[0].fields), line)
        axes.axhline(0.0, color=GREY, linewidth=0.8)
        axes.set(xticks=sorted(set(runs["task.noise"])), xlabel="noise of the tokens")
        axes.set_ylabel(f"loss minus that with the {'best assignment' if name == BEST else 'hard router'}, %")
    hollow = ", ".join(f"{steps} steps" for steps in longer)
    figure.suptitle(f"after {shortest} steps" + (f"; hollow: after {hollow}" if longer else ""), fontsize=11)
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=3, fontsize=9)
    return figure


# The finding, the page and the command -------------------------------------------------------------------------------


def gradient(results: Path) -> Finding | None:
    """Judges the relaxed router's loss against the hard one's, at the noise and length at which both were tuned."""
    if (runs := load(results / "vmoe_clusters")).empty:
        return None
    on_test = runs[runs["split"] == "test"]
    relaxed = on_test[(on_test["router.name"] == "relaxed") & (on_test["task.noise"] == _TUNED_AT)]
    if relaxed.empty:
        return None
    over = intervals(_minus(on_test, "hard"))[relaxed["steps"].idxmin()]
    return Finding(None, judged(over, f"relaxed loss {{}}, noise {_TUNED_AT:g}", lower=True), "a task of ours")


def blocks(results: Path) -> dict[str, list[str]]:
    """Returns the table of the page, by the name of its block."""
    runs = load(results / "vmoe_clusters")
    on_test = runs[runs["split"] == "test"] if len(runs) else runs
    return {"vmoe_clusters": _excesses(on_test)[:-1]} if len(on_test) else {}


make = functools.partial(making.make, PRESENTATION, tables, figures)  # takes the directory of the runs

if __name__ == "__main__":
    console.run(lambda arguments: making.on_directory("experiments.vmoe_clusters.report", making.DOC, make, arguments))
