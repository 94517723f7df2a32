"""Names, tables, figures and the finding of the task of clusters: `python -m experiments.vmoe_clusters.report DIR`.

It reads the runs below DIR and writes DIR/table.md and, as PNG and SVG, to DIR/figures

    excess     the loss over that of the best assignment, and over that of the hard router, against the noise
    recovery   how much of the best assignment is found in the course of training
"""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.core import console
from experiments.core.record.summary import interval
from experiments.core.report import making
from experiments.core.report.finding import Finding, Measured, Verdict, answer, sign
from experiments.core.report.markdown import Numbers, mean, outcome, plus_minus, signed, table
from experiments.core.report.paired import detectable, difference
from experiments.core.report.results import NUMBER, Run
from experiments.core.report.runs import dotted, frame
from experiments.core.report.style import BLACK, GREY, curve
from experiments.vmoe import report as routers
from experiments.vmoe_clusters.kinds import BEST, KINDS, NAMES

REACHED = 0.9  # of what the true centres recover
# Routers with a gradient through the mask, and what the finding calls them.
WITH_GRADIENT = {"relaxed": "relaxed", "annealed": "annealed to the hard", "straight_through": "straight-through"}
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
    title="the task of clusters",
    kinds=KINDS,
    # Buffers are as large for all, so that names need not say it.
    method=lambda fields: (
        "the best assignment" if fields["router.name"] == BEST else routers.method({**fields, "router.capacity": 0})
    ),
    look=lambda fields: (BLACK, "-") if fields["router.name"] == BEST else routers.LOOKS[fields["router.name"]],
    headline=lambda fields: (fields["split"], fields["task.noise"], fields["steps"]) == ("test", 0.3, 1000),
    types={
        **dict.fromkeys(("split", "router.score"), str),
        **dict.fromkeys(("task.noise", "router.lam.start", "optimizer.learning_rate"), NUMBER),
        "steps": int,
    },
)
load = functools.cache(lambda directory: PRESENTATION.load(directory)[0])  # committed runs do not change


def make(directory: Path) -> list[Path]:
    """Writes and prints the tables of the runs below `directory` and draws figures; returns the files written."""
    return making.make(PRESENTATION, tables, figures, directory)


def of_split(found: pd.DataFrame, split: str) -> pd.DataFrame:
    """The runs of a split, by steps and noise, then in the order of the routers, then by learning rate."""

    def place(run: Run) -> tuple[Any, ...]:
        rate = run.config["optimizer"]["learning_rate"]
        return run.config["steps"], run.config["task"]["noise"], NAMES.index(run.config["router"]["name"]), rate

    return frame(sorted((run for run in found["run"] if run.config["split"] == split), key=place))


def _by_circumstances(final: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Runs of one noise and length, by these."""
    groups = final.groupby(["steps", "task.noise"]) if len(final) else ()
    return {f"noise {noise:g}, {steps} steps": alike for (steps, noise), alike in groups}


def _minus(final: pd.DataFrame, router: str) -> pd.Series:
    """The loss minus that with the router of a name, by run; None for the best assignment, and that router itself."""
    pairs = zip(final["run"], PRESENTATION.references(final, router), strict=True)
    differences = [
        difference(run, other, "test_loss") if other and run.config["router"]["name"] != BEST else None
        for run, other in pairs
    ]
    return pd.Series(differences, index=final.index, dtype=object)


def steps_to_reach(run: Run, share: float = REACHED) -> list[int | None]:
    """By seed, the first step with a row that recovers at least this share of what the true centres do; None: never."""
    reached: list[int | None] = [None] * len(run.summary["seeds"])
    for row in reversed(run.rows):
        pairs = zip(row["test_recovery"], row["test_reachable"], strict=True)
        for seed, (found, reachable) in enumerate(pairs):
            if found is not None and found >= share * reachable:
                reached[seed] = row["step"]
    return reached


def tables(found: pd.DataFrame, chosen: frozenset[str]) -> list[str]:
    """The lines of all tables; `chosen` names the runs of the sweep that won."""
    lines = []
    if len(final := of_split(found, "test")):
        lines += ["### Test: loss over that of the best assignment, %", *_DEFINITIONS.split("\n"), *_excesses(final)]
        for where, alike in _by_circumstances(final).items():
            reachable = plus_minus(interval(alike["run"].iloc[0].final("test_reachable")))
            lines += [f"### Test at {where}", "", f"The true centres recover {reachable} %.", "", *_full(alike)]
    if len(tried := of_split(found, "validation")):
        diverged = tried["run"].map(lambda run: f"{run.summary['diverged']} of {len(run.summary['seeds'])}")
        cells = routers.columns(PRESENTATION, tried) | {
            "loss, %": _metric(tried, "valid_loss", plus_minus),
            "recovered, %": _metric(tried, "valid_recovery", plus_minus),
            "tokens of an expert": _metric(tried, "valid_router/support", _rounded),
            "diverged": diverged,
            "choice": ["chosen" if name in chosen else "" for name in tried.index],
        }
        lines += [f"### Validation: noise {tried['task.noise'].iloc[0]:g}", "", *table(pd.DataFrame(cells), text=1)]
    return lines


def _metric(found: pd.DataFrame, metric: str, written: Callable[[Numbers], str]) -> pd.Series:
    return found["run"].map(lambda run: written(interval(run.final(metric))))


def _rounded(value: Numbers) -> str:
    return mean(value, digits=1)


def _excesses(final: pd.DataFrame) -> list[str]:
    """A row for each router and its lam, a column for each noise and number of steps."""
    columns = _by_circumstances(final)
    rows: dict[str, dict[str, str]] = {}
    for where, alike in columns.items():
        cells = pd.DataFrame(routers.columns(PRESENTATION, alike) | {"excess": _minus(alike, BEST)}).dropna()
        for cell in cells.to_dict("records"):
            label = cell["router"] if cell["lam"] == "-" else f"{cell['router']}, lam = {cell['lam']}"
            if rows.get(label, {}).get(where, "-") != "-":  # at another learning rate
                label = f"{label}, learning rate {cell['learning rate']}"
            rows.setdefault(label, {"router": label, **dict.fromkeys(columns, "-")})[where] = signed(cell["excess"])
    return table(pd.DataFrame(rows.values()), text=1)


def _full(final: pd.DataFrame) -> list[str]:
    minus = _minus(final, "hard")
    cells = routers.columns(PRESENTATION, final) | {
        "loss, %": _metric(final, "test_loss", plus_minus),
        "excess": _minus(final, BEST).map(signed),
        "minus hard": minus.map(signed),
        "detectable": minus.map(lambda value: routers.digits(detectable(value))),
        "recovered, %": _metric(final, "test_recovery", plus_minus),
        "steps to 90 %": final["run"].map(lambda run: _steps(steps_to_reach(run))),
        "tokens of an expert": _metric(final, "test_router/support", _rounded),
        "dropped mass, %": _metric(final, "test_router/dropped_mass", _rounded),
    }
    return table(pd.DataFrame(cells | outcome(final)), text=1)


def _steps(reached: list[int | None]) -> str:
    got_there = [step for step in reached if step is not None]
    never = reached.count(None)
    return f"{np.mean(got_there):.0f}{f' ({never})' if never else ''}" if got_there else "never"


def figures(found: pd.DataFrame) -> dict[str, Figure]:
    """The figures that the runs allow."""
    final = of_split(found, "test")
    drawn = {"excess": excess(final)} if len(final) and _minus(final, BEST).notna().any() else {}
    return drawn | ({"recovery": recovery(final)} if len(final) else {})


def excess(final: pd.DataFrame) -> Figure:
    """Loss minus that with the best assignment, and minus that with the hard router, against the noise.

    Means and intervals, a line for each router. Runs of other lengths than the shortest stand alone, as hollow points.
    """
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    over_best, over_hard = figure.subplots(1, 2)
    handles: dict[str, Any] = {}
    for axes, name in ((over_best, BEST), (over_hard, "hard")):
        held = final.assign(minus=_minus(final, name), longer=final["steps"] > final["steps"].min())
        held = held[held["minus"].map(lambda value: value is not None and value["mean"] is not None)]
        for (router, longer), points in held.groupby(["router.name", "longer"], sort=False):
            fields = dotted(points["run"].iloc[0].config)
            colour, dashes = PRESENTATION.look(fields)
            drawn = axes.errorbar(
                points["task.noise"] + 0.003 * (NAMES.index(router) - 3),  # lest intervals hide each other
                [value["mean"] for value in points["minus"]],
                [value["interval95"] or 0.0 for value in points["minus"]],
                **{"color": colour, "linestyle": "none" if longer else dashes, "marker": "o", "markersize": 4},
                **{"markerfacecolor": "white" if longer else colour, "capsize": 2, "linewidth": 1.4},
            )
            handles.setdefault(PRESENTATION.method(fields), drawn)
        axes.axhline(0.0, color=GREY, linewidth=0.8)
        axes.set_xticks(sorted(set(final["task.noise"])))
        axes.set_xlabel("noise of the tokens")
    over_best.set_ylabel("loss minus that with the best assignment, %")
    over_hard.set_ylabel("loss minus that with the hard router, %")
    shortest, *longer = (f"{steps} steps" for steps in sorted(set(final["steps"])))
    figure.suptitle(f"after {shortest}" + (f"; hollow: after {', '.join(longer)}" if longer else ""), fontsize=11)
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=3, fontsize=9)
    return figure


def recovery(final: pd.DataFrame) -> Figure:
    """Share of the best assignment found against steps: a colour for each router, dashes for each learning rate."""
    panels = _by_circumstances(final)
    dashes = dict(zip(sorted(set(final["optimizer.learning_rate"])), ("-", "--", ":", "-."), strict=False))
    figure = Figure(figsize=(max(7.5, 2.6 + 2.4 * len(panels)), 4.8), layout="constrained")
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    handles: dict[str, Any] = {}
    for axes, (where, shown) in zip(row, panels.items(), strict=True):
        for run in shown["run"][shown["router.name"] != BEST]:
            fields = dotted(run.config)
            look = PRESENTATION.look(fields)[0], dashes.get(fields["optimizer.learning_rate"], "-.")
            steps = [row["step"] for row in run.rows]
            curve(axes, steps, [interval(row["test_recovery"]) for row in run.rows], look)
            handles[PRESENTATION.method(fields)] = Line2D([], [], color=look[0])
        # From the start, when no seed has diverged.
        reachable = np.mean(shown["run"].iloc[0].rows[0]["test_reachable"])
        handles["the true centres, hard top-k"] = axes.axhline(reachable, color=GREY, linestyle=(0, (1, 3)))
        axes.set_title(where)
        axes.set_xlabel("steps")
    row[0].set_ylabel("recovered of the best assignment, %")
    handles |= {f"learning rate {rate:g}": Line2D([], [], color=BLACK, linestyle=of) for rate, of in dashes.items()}
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=4, fontsize=9)
    return figure


def gradient(results: Path) -> Finding | None:
    """Routers with a gradient through the mask against the hard one, by the loss at every noise."""
    final = of_split(load(results / "vmoe_clusters"), "test")
    rows = final[final["router.name"].isin(WITH_GRADIENT)] if len(final) else final
    minus = _minus(final, "hard")[rows.index].dropna() if len(rows) else pd.Series()
    if minus.empty:
        return None
    rows = rows.loc[minus.index]
    signs = [-sign(value) for value in minus]
    count = f"{signs.count(1)} of {len(signs)}"
    names = rows["router.name"].map(WITH_GRADIENT)
    names += rows["task.noise"].map(", noise {:g}".format) + rows["steps"].map(" ({} steps)".format)
    return Finding(
        "On a task with a known best assignment, routers with a gradient through the mask explain more than the hard "
        f"one in {count} comparisons, and less in {signs.count(-1)}.",
        None,
        Verdict(answer(signs), f"relaxed better in {count}, worse in {signs.count(-1)}"),
        "a task of ours",
        "loss minus the hard router's, % of the variance",
        [Measured.of(name, value) for name, value in zip(names, minus, strict=True)],
    )


def blocks(results: Path) -> dict[str, list[str]]:
    """The table of the page of results, by the name of its block."""
    final = of_split(load(results / "vmoe_clusters"), "test")
    return {"vmoe_clusters": _excesses(final)[:-1]} if len(final) else {}


if __name__ == "__main__":
    console.run(functools.partial(making.main, make, "vmoe_clusters"))
