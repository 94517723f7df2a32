"""Names, tables, figures and the finding of the task of clusters: `python -m experiments.vmoe_clusters.report DIR`.

It reads the runs below DIR and writes DIR/table.md and, as PNG and SVG, to DIR/figures

    excess     the loss over that of the best assignment, and over that of the hard router, against the noise
    recovery   how much of the best assignment is found in the course of training
"""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.core import console
from experiments.core.record.summary import interval
from experiments.core.report import making
from experiments.core.report.finding import Finding, Numbers, Verdict, answer, measured, sign
from experiments.core.report.markdown import Cells, decimal, lost, mean, outcome, plus_minus, signed, table
from experiments.core.report.paired import detectable, minus
from experiments.core.report.results import NUMBER, Run
from experiments.core.report.runs import grouped
from experiments.core.report.style import BLACK, GREY, bars, curve
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


def of_split(runs: Sequence[Run], split: str) -> list[Run]:
    """The runs of a split, by steps and noise, then in the order of the routers, then by learning rate."""

    def place(run: Run) -> tuple[Any, ...]:
        rate = run.config["optimizer"]["learning_rate"]
        return _steps(run), _noise(run), NAMES.index(_router(run)), rate, run.name

    return sorted((run for run in runs if run.config["split"] == split), key=place)


def _router(run: Run) -> str:
    return run.config["router"]["name"]


def _noise(run: Run) -> float:
    return run.config["task"]["noise"]


def _steps(run: Run) -> int:
    return run.config["steps"]


def _where(run: Run) -> str:
    return f"noise {_noise(run):g}, {_steps(run)} steps"


def _by_circumstances(final: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs of one noise and length, by these."""
    return grouped(final, _where)


def _minus(final: Sequence[Run], router: str) -> dict[str, Numbers | None]:
    """The loss minus that with the router of a name, by run; None for the best assignment, and that router itself."""
    references = PRESENTATION.references(final, router)
    return {run.name: None if _router(run) == BEST else minus(run, references[run.name], "test_loss") for run in final}


def steps_to_reach(run: Run, share: float = REACHED) -> list[int | None]:
    """By seed, the first step with a row that recovers at least this share of what the true centres do; None: never."""
    reached: list[int | None] = [None] * len(run.summary["seeds"])
    for row in reversed(run.rows):
        pairs = zip(row["test_recovery"], row["test_reachable"], strict=True)
        for seed, (found, reachable) in enumerate(pairs):
            if found is not None and found >= share * reachable:
                reached[seed] = row["step"]
    return reached


# Tables --------------------------------------------------------------------------------------------------------------


def tables(runs: Sequence[Run], chosen: frozenset[str]) -> list[str]:
    """The lines of all tables; `chosen` names the runs of the sweep that won."""
    lines = []
    if final := of_split(runs, "test"):
        lines += ["### Test: loss over that of the best assignment, %", *_DEFINITIONS.split("\n"), *_excesses(final)]
        for where, alike in _by_circumstances(final).items():
            reachable = plus_minus(alike[0].end("test_reachable"))
            lines += [f"### Test at {where}", "", f"The true centres recover {reachable} %.", ""]
            lines += table(full_rows(alike), text=1)
    if tried := of_split(runs, "validation"):
        rows = [
            row
            | {
                "loss, %": plus_minus(run.end("valid_loss")),
                "recovered, %": plus_minus(run.end("valid_recovery")),
                "tokens of an expert": mean(run.end("valid_router/support"), digits=1),
                "diverged": lost(run),
                "choice": "chosen" if run.name in chosen else "",
            }
            for run, row in zip(tried, routers.router_cells(PRESENTATION, tried), strict=True)
        ]
        lines += [f"### Validation: noise {_noise(tried[0]):g}", "", *table(rows, text=1)]
    return lines


def _excesses(final: Sequence[Run]) -> list[str]:
    """A row for each router and its lam, a column for each noise and number of steps."""
    columns = _by_circumstances(final)
    rows: dict[str, Cells] = {}
    for where, alike in columns.items():
        over = _minus(alike, BEST)
        for run, cell in zip(alike, routers.router_cells(PRESENTATION, alike), strict=True):
            if over[run.name] is None:
                continue
            label = cell["router"] if cell["lam"] == "-" else f"{cell['router']}, lam = {cell['lam']}"
            if rows.get(label, {}).get(where, "-") != "-":  # at another learning rate
                label = f"{label}, learning rate {cell['learning rate']}"
            row = rows.setdefault(label, {"router": label, **dict.fromkeys(columns, "-")})
            row[where] = signed(over[run.name])
    return table(list(rows.values()), text=1)


def full_rows(final: Sequence[Run]) -> list[Cells]:
    """The rows of a table of one noise and length, with all that was measured."""
    over_hard, over_best, rows = _minus(final, "hard"), _minus(final, BEST), []
    for run, row in zip(final, routers.router_cells(PRESENTATION, final), strict=True):
        reached = steps_to_reach(run)
        got_there, never = [step for step in reached if step is not None], reached.count(None)
        row |= {
            "loss, %": plus_minus(run.end("test_loss")),
            "excess": signed(over_best[run.name]),
            "minus hard": signed(over_hard[run.name]),
            "detectable": decimal(detectable(over_hard[run.name])),
            "recovered, %": plus_minus(run.end("test_recovery")),
            "steps to 90 %": f"{np.mean(got_there):.0f}{f' ({never})' if never else ''}" if got_there else "never",
            "tokens of an expert": mean(run.end("test_router/support"), digits=1),
            "dropped mass, %": mean(run.end("test_router/dropped_mass"), digits=1),
        }
        rows.append(row | outcome(run))
    return rows


# Figures -------------------------------------------------------------------------------------------------------------


def figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """The figures that the runs allow."""
    final = of_split(runs, "test")
    drawn = {"excess": excess(final)} if any(_minus(final, BEST).values()) else {}
    return drawn | ({"recovery": recovery(final)} if final else {})


def excess(final: Sequence[Run]) -> Figure:
    """Loss minus that with the best assignment, and minus that with the hard router, against the noise.

    Means and intervals, a line for each router. Runs of other lengths than the shortest stand alone, as hollow points.
    """
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    over_best, over_hard = figure.subplots(1, 2)
    shortest, *longer = sorted({_steps(run) for run in final})
    handles: dict[str, Any] = {}
    for axes, name in ((over_best, BEST), (over_hard, "hard")):
        over = _minus(final, name)
        drawn = [run for run in final if (over[run.name] or {}).get("mean") is not None]
        for (router, is_longer), points in grouped(drawn, lambda run: (_router(run), _steps(run) > shortest)).items():
            fields = points[0].fields
            colour, dashes = PRESENTATION.look(fields)
            x = [_noise(run) + 0.003 * (NAMES.index(router) - 3) for run in points]  # lest intervals hide each other
            look, face = (colour, "none" if is_longer else dashes), "white" if is_longer else colour
            values = [over[run.name] for run in points]
            line = bars(axes, x, values, look, marker="o", markersize=4, markerfacecolor=face, linewidth=1.4)
            handles.setdefault(PRESENTATION.method(fields), line)
        axes.axhline(0.0, color=GREY, linewidth=0.8)
        axes.set_xticks(sorted({_noise(run) for run in final}))
        axes.set_xlabel("noise of the tokens")
    over_best.set_ylabel("loss minus that with the best assignment, %")
    over_hard.set_ylabel("loss minus that with the hard router, %")
    hollow = ", ".join(f"{steps} steps" for steps in longer)
    figure.suptitle(f"after {shortest} steps" + (f"; hollow: after {hollow}" if longer else ""), fontsize=11)
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=3, fontsize=9)
    return figure


def recovery(final: Sequence[Run]) -> Figure:
    """Share of the best assignment found against steps: a colour for each router, dashes for each learning rate."""
    panels = _by_circumstances(final)
    rates = sorted({run.config["optimizer"]["learning_rate"] for run in final})
    dashes = dict(zip(rates, ("-", "--", ":", "-."), strict=False))
    figure = Figure(figsize=(max(7.5, 2.6 + 2.4 * len(panels)), 4.8), layout="constrained")
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    handles: dict[str, Any] = {}
    for axes, (where, shown) in zip(row, panels.items(), strict=True):
        for run in (run for run in shown if _router(run) != BEST):
            look = PRESENTATION.look(run.fields)[0], dashes.get(run.config["optimizer"]["learning_rate"], "-.")
            curve(axes, [row["step"] for row in run.rows], [interval(row["test_recovery"]) for row in run.rows], look)
            handles[PRESENTATION.method(run.fields)] = Line2D([], [], color=look[0])
        # From the start, when no seed has diverged.
        reachable = np.mean(shown[0].rows[0]["test_reachable"])
        handles["the true centres, hard top-k"] = axes.axhline(reachable, color=GREY, linestyle=(0, (1, 3)))
        axes.set_title(where)
        axes.set_xlabel("steps")
    row[0].set_ylabel("recovered of the best assignment, %")
    handles |= {f"learning rate {rate:g}": Line2D([], [], color=BLACK, linestyle=its) for rate, its in dashes.items()}
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=4, fontsize=9)
    return figure


# The finding, the page and the command -------------------------------------------------------------------------------


def gradient(results: Path) -> Finding | None:
    """Routers with a gradient through the mask against the hard one, by the loss at every noise."""
    final = of_split(load(results / "vmoe_clusters"), "test")
    over = _minus(final, "hard")
    compared = [run for run in final if _router(run) in WITH_GRADIENT and over[run.name]]
    if not compared:
        return None
    signs = [-sign(over[run.name]) for run in compared]
    count = f"{signs.count(1)} of {len(signs)}"
    return Finding(
        "On a task with a known best assignment, routers with a gradient through the mask explain more than the hard "
        f"one in {count} comparisons, and less in {signs.count(-1)}.",
        None,
        Verdict(answer(signs), f"relaxed better in {count}, worse in {signs.count(-1)}"),
        "a task of ours",
        "loss minus the hard router's, % of the variance",
        {f"{WITH_GRADIENT[_router(run)]}, {_where(run)}": measured(over[run.name]) for run in compared},
    )


def blocks(results: Path) -> dict[str, list[str]]:
    """The table of the page of results, by the name of its block."""
    final = of_split(load(results / "vmoe_clusters"), "test")
    return {"vmoe_clusters": _excesses(final)[:-1]} if final else {}


make = functools.partial(making.make, PRESENTATION, tables, figures)  # takes the directory of the runs

if __name__ == "__main__":
    console.run(lambda arguments: making.main(make, "vmoe_clusters", arguments))
