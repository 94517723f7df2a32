"""Names, tables, figures and the finding of the task of clusters: `python -m experiments.vmoe_clusters.report DIR`.

It writes DIR/table.md and DIR/figures/excess: the loss minus that of the best assignment, and minus that of the hard
router, against the noise.
"""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.core import console
from experiments.core.report import making, markdown
from experiments.core.report.finding import Finding, Numbers, Verdict, in_words, of_sign, sign
from experiments.core.report.paired import minus
from experiments.core.report.results import Run, grouped
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
        *(_steps(run), _noise(run), NAMES.index(_router(run)), run.config["optimizer"]["learning_rate"]),
        run.name,
    ),
    # All have buffers of one size, so names leave it out.
    method=lambda fields: (
        "the best assignment" if fields["router.name"] == BEST else routers.method({**fields, "router.capacity": 0})
    ),
)
load = functools.cache(lambda directory: PRESENTATION.load(directory)[0])  # committed runs do not change


def of_split(runs: Sequence[Run], split: str) -> list[Run]:
    """The runs of a split."""
    return [run for run in runs if run.config["split"] == split]


def _router(run: Run) -> str:
    return run.config["router"]["name"]


def _noise(run: Run) -> float:
    return run.config["task"]["noise"]


def _steps(run: Run) -> int:
    return run.config["steps"]


def _noise_and_steps(run: Run) -> str:
    return f"noise {_noise(run):g}, {_steps(run)} steps"


def _by_circumstances(final: Sequence[Run]) -> dict[str, list[Run]]:
    """Groups runs by noise and length."""
    return grouped(final, _noise_and_steps)


def _references(final: Sequence[Run], router: str) -> dict[str, Run | None]:
    """Returns by run the one with `router` to compare it with; None for the best assignment and for that router."""
    found = PRESENTATION.references(final, router)
    return {run.name: None if _router(run) == BEST else found[run.name] for run in final}


def _minus(final: Sequence[Run], router: str) -> dict[str, Numbers | None]:
    """Returns by run its loss minus that with `router`."""
    references = _references(final, router)
    return {run.name: minus(run, references[run.name], "test_loss") for run in final}


def steps_to_reach(run: Run, share: float = REACHED) -> list[int | None]:
    """Returns by seed the first step with at least this share of what the true centres recover, or None if never."""
    reached: list[int | None] = [None] * len(run.summary["seeds"])
    for row in reversed(run.rows):
        pairs = zip(row["test_recovery"], row["test_reachable"], strict=True)
        for seed, (found, reachable) in enumerate(pairs):
            if found is not None and found >= share * reachable:
                reached[seed] = row["step"]
    return reached


# Tables --------------------------------------------------------------------------------------------------------------


def tables(runs: Sequence[Run], chosen: frozenset[str]) -> list[str]:
    """Returns the lines of all tables; `chosen` names the runs of the sweep that won."""
    lines = []
    if final := of_split(runs, "test"):
        lines += ["### Test: loss over that of the best assignment, %", *_DEFINITIONS.split("\n"), *_excesses(final)]
        for where, group in _by_circumstances(final).items():
            reachable = markdown.plus_minus(group[0].end("test_reachable"))
            lines += [f"### Test at {where}", "", f"The true centres recover {reachable} %.", ""]
            lines += markdown.table(full_rows(group), text=1)
    if tried := of_split(runs, "validation"):
        columns = {"loss, %": markdown.value("valid_loss"), "recovered, %": markdown.value("valid_recovery")}
        rows = markdown.rows(routers.router_cells(PRESENTATION, tried), tried, columns, chosen)
        lines += markdown.section(f"Validation: noise {_noise(tried[0]):g}", rows, text=1)
    return lines


def _excesses(final: Sequence[Run]) -> list[str]:
    """Returns the lines of the excess: a row for each router and lam, a column for each noise and length."""
    found: dict[tuple[str, str], str] = {}
    for where, group in _by_circumstances(final).items():
        over = _minus(group, BEST)
        for run, cell in zip(group, routers.router_cells(PRESENTATION, group), strict=True):
            label = cell["router"] if cell["lam"] == "-" else f"{cell['router']}, lam = {cell['lam']}"
            if (label, where) in found:
                label = f"{label}, learning rate {cell['learning rate']}"
            if over[run.name] is not None:
                found[label, where] = markdown.signed(over[run.name])
    return markdown.table(markdown.pivot("router", ((*key, cell) for key, cell in found.items())), text=1)


def full_rows(final: Sequence[Run]) -> list[markdown.Cells]:
    """Returns the rows of runs of one noise and length, with everything that was measured."""
    hard = _references(final, "hard")

    def steps(run: Run) -> str:
        reached = steps_to_reach(run)
        there, never = [step for step in reached if step is not None], reached.count(None)
        return f"{np.mean(there):.0f}{f' ({never})' if never else ''}" if there else "never"

    columns: markdown.Columns = {
        "loss, %": markdown.value("test_loss"),
        "excess": markdown.minus_reference(_references(final, BEST), "test_loss"),
        "minus hard": markdown.minus_reference(hard, "test_loss"),
        "detectable": markdown.detectable_difference(hard, "test_loss"),
        "recovered, %": markdown.value("test_recovery"),
        "steps to 90 %": steps,
        "tokens of an expert": markdown.value("test_router/support"),
    }
    return markdown.rows(routers.router_cells(PRESENTATION, final), final, columns)


# Figures -------------------------------------------------------------------------------------------------------------


def figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """Draws the excess, if there is a best assignment to compare with."""
    final = of_split(runs, "test")
    return {"excess": excess(final)} if any(_minus(final, BEST).values()) else {}


def excess(final: Sequence[Run]) -> Figure:
    """Draws the loss minus that with the best assignment, and minus that with the hard router, against the noise.

    Each router has a line of means with intervals. Runs longer than the shortest are hollow points without a line.
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
            colour, dashes = routers.LOOKS[router]
            x = [
                _noise(run) + 0.003 * (NAMES.index(router) - 3) for run in points
            ]  # so that intervals do not hide each other
            look, face = (colour, "none" if is_longer else dashes), "white" if is_longer else colour
            values = [over[run.name] for run in points]
            line = bars(axes, x, values, look, marker="o", markersize=4, markerfacecolor=face, linewidth=1.4)
            handles.setdefault(PRESENTATION.method(fields), line)
        axes.axhline(0.0, color=GREY, linewidth=0.8)
        axes.set(xticks=sorted({_noise(run) for run in final}), xlabel="noise of the tokens")
        axes.set_ylabel(f"loss minus that with the {'best assignment' if name == BEST else 'hard router'}, %")
    hollow = ", ".join(f"{steps} steps" for steps in longer)
    figure.suptitle(f"after {shortest} steps" + (f"; hollow: after {hollow}" if longer else ""), fontsize=11)
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=3, fontsize=9)
    return figure


# The finding, the page and the command -------------------------------------------------------------------------------


def gradient(results: Path) -> Finding | None:
    """Judges the relaxed router's loss against the hard one's, at the noise and length at which both were tuned."""
    final = of_split(load(results / "vmoe_clusters"), "test")
    relaxed = [run for run in final if _router(run) == "relaxed" and _noise(run) == _TUNED_AT]
    if not relaxed:
        return None
    run = min(relaxed, key=_steps)
    difference = _minus(final, "hard")[run.name]
    told = f"its loss is {in_words(difference)}, noise {_TUNED_AT:g}"
    return Finding(None, Verdict(of_sign(-sign(difference)), told), "a task of ours")


def blocks(results: Path) -> dict[str, list[str]]:
    """Returns the table of the page, by the name of its block."""
    final = of_split(load(results / "vmoe_clusters"), "test")
    return {"vmoe_clusters": _excesses(final)[:-1]} if final else {}


make = functools.partial(making.make, PRESENTATION, tables, figures)  # takes the directory of the runs

if __name__ == "__main__":
    console.run(lambda arguments: making.on_directory("experiments.vmoe_clusters.report", making.DOC, make, arguments))
