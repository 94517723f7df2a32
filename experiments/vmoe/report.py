"""Names, tables, figures and the finding of the V-MoE experiment: `python -m experiments.vmoe.report DIR`.

It writes DIR/table.md and DIR/figures/figure7: the precision-at-1 of each router minus that of the hard one, after each
length of training.
"""

import functools
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from experiments.core import console
from experiments.core.config import leaves
from experiments.core.errors import printable
from experiments.core.kinds import Fields
from experiments.core.record.files import read_object
from experiments.core.report import finding, making, markdown
from experiments.core.report.finding import Finding, judged, where_possible
from experiments.core.report.frame import difference, intervals, minus
from experiments.core.report.presentation import Presentation
from experiments.core.report.results import Run
from experiments.core.report.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, Look
from experiments.vmoe.router_kinds import KINDS, ROUTERS

ON_TOKENS = "vmoe_tokens"  # the directory of results on features of a frozen network

# The names of routers, where those in the config do not do; and their looks.
NAMES = {
    "annealed": "annealed to hard",
    "straight_through": "straight-through",
    "balanced": "balanced plan",
    "soft": "Soft MoE",
    "dense": "dense MLP, no experts",
    "none": "neither experts nor MLP",
}
LOOKS: dict[str, Look] = {
    "hard": (BLUE, "-"),
    "relaxed": (RED, "-"),
    "annealed": (ORANGE, "--"),
    "straight_through": (PURPLE, "--"),
    "balanced": (GREEN, "--"),
    "token_choice": (GREY, "-"),
    "soft": (SKY, "-"),
    "dense": (GREY, ":"),
    "none": (GREY, "-."),
}
_METRIC = "test_precision_at_1"
# Columns with metrics of the routing, means over the layers of experts.
_ROUTING = {
    "dropped mass, %": "test_router/*/dropped_mass",
    "tokens of an expert": "test_router/*/support",
    "tokens with an expert, %": "test_router/*/served_by_1",
}
# The ways of evaluation in the records of `batches.py`, and the columns of their loads.
_WAYS = {"batch": "in batches", "alone": "alone"}
_LOADS = {
    "tokens": "tokens of an expert",
    "variation": "variation",
    "without": "without expert, %",
    "dropped": "dropped, %",
}
_DEFINITIONS = """
Logits or gates: what the tokens compete by, before or after the softmax over the experts. Mean ± half width of the 95 %
t-interval over seeds; differences are paired by seed, over the seeds that both have. *Minus hard*: routers with lam
minus the hard one of their score, all others minus the hard one of the gates. *Detectable*: a true difference this
large is found in 80 % of such experiments. On validation a router chooses a learning rate, then its lam.

What routers do is given for the end of training, as means over groups, layers and seeds. *Dropped mass*: the part of a
mask that finds no room in the buffer. *Stability*: the pairs of token and expert that are in two successive rows of
metrics, of those in either; mean over training.
"""


def method(fields: Fields) -> str:
    """Names a router with its form, as `relaxed, logits, p = 4/3` or `relaxed, logits, 84 slots`."""
    router = fields["router.name"]
    reads = KINDS.reads[router]
    parts = [NAMES.get(router, router.replace("_", " "))]
    if "router.score" in reads:
        parts.append(fields["router.score"])
    if "router.p" in reads and fields["router.p"] != 2:
        parts.append(f"p = {markdown.p_name(fields['router.p'])}")
    if "router.dykstra" in reads and fields["router.dykstra"]:
        parts.append(f"Dykstra, {fields['router.dykstra']} iterations")
    if fields["router.capacity"]:
        parts.append(f"{fields['router.capacity']} slots")
    return ", ".join(parts)


def distance(fields: Fields, of_hard: Fields) -> tuple[bool, bool]:
    """Ranks hard routers to compare with: a router with lam wants that of its own score, others that of the gates."""
    usual = ROUTERS["hard"].score
    wanted = fields["router.score"] if "router.lam" in KINDS.reads.get(fields["router.name"], ()) else usual
    return of_hard["router.score"] != wanted, of_hard["router.score"] != usual


def further(run: Run) -> str:
    """Names the seeds of a run on test that trains with others than the first."""
    seeds = run.config["seeds"]
    return f"seeds {seeds[0]} to {seeds[-1]}" if run.config["split"] == "test" and seeds[0] > 0 else ""


def order(run: Run) -> tuple[Any, ...]:
    """Returns the place of a run: by length, router in the order of ROUTERS, learning rate and lam."""
    router, rate = run.config["router"], run.config["optimizer"]["learning_rate"]
    form = (router["score"] != ROUTERS[router["name"]].score, router["dykstra"], router["capacity"], -router["p"])
    kind = list(ROUTERS).index(router["name"])
    return run.config["steps"], kind, *form, rate, router["lam"]["start"], run.name


PRESENTATION = Presentation(
    experiment="vmoe",
    kinds=KINDS,
    method=method,
    baseline="hard",
    order=order,
    setting=("router.capacity",),
    names={
        "router.lam.start": "lam",
        "router.lam.end": "lam at the end",
        "router.limit": "experts of a token at most",
    },
    distance=distance,
)
load = functools.cache(lambda directory: PRESENTATION.load(directory)[0])  # committed runs do not change


def final_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the runs on test, in order; runs that differ in seeds alone are joined."""
    return PRESENTATION.joined(runs[runs["split"] == "test"]) if len(runs) else runs


# Tables --------------------------------------------------------------------------------------------------------------


def tables(runs: pd.DataFrame, chosen: frozenset[str]) -> list[str]:
    """Returns the lines of all tables: on test, then the sweeps; `chosen` names the runs that won one."""
    lines: list[str] = []
    if len(on_test := final_runs(runs)):
        lines += [f"{_title(on_test['run'].iloc[0])}.", *_DEFINITIONS.split("\n")]
        for steps, group in on_test.groupby("steps"):
            lines += markdown.section(f"Test after {steps} steps", test_rows(group), text=1)
    for steps, group in runs[runs["split"] == "validation"].groupby("steps"):
        cells = router_cells(PRESENTATION, group) | {"precision-at-1, %": "valid_precision_at_1"}
        rows = markdown.rows(group, cells, chosen)
        lines += markdown.section(f"Validation, {steps} steps", rows, text=1)
    return lines


def router_cells(presentation: Presentation, runs: pd.DataFrame) -> dict[str, Any]:
    """Returns the first cells of each row: the router, its learning rate, and its lam."""
    settings = presentation.settings(runs["run"], given=("optimizer.learning_rate", "router.lam", "steps"))
    names = [", ".join(filter(None, [presentation.method(run.fields), further(run)])) for run in runs["run"]]

    def lam(run: Run) -> str:
        read = presentation.read(run.fields)
        ends = [markdown.number(read[name]) for name in ("router.lam.start", "router.lam.end") if name in read]
        return " to ".join(ends) or "-"

    return {
        "router": [", ".join(filter(None, parts)) for parts in zip(names, settings, strict=True)],
        "learning rate": runs["optimizer.learning_rate"].map(markdown.number),
        "lam": runs["run"].map(lam),
    }


def test_rows(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of runs on test: precision, differences from the hard router, and what the routers do."""
    hards = PRESENTATION.references(runs["run"])
    over = minus(runs, hards, _METRIC)
    cells = {
        "precision-at-1, %": _METRIC,
        "minus hard": markdown.cells(over, signed=True),
        "detectable": markdown.detectable_cells(over),
        **_ROUTING,
        "stability, %": markdown.value(runs, _stability),
        "stability minus hard": markdown.minus_reference(runs, hards, _stability),
    }
    return markdown.rows(runs, router_cells(PRESENTATION, runs) | cells)


def _stability(run: Run) -> list[list[float | None]]:
    """Returns the stability by layer and row of metrics, of which the first has none."""
    return [layer for row in run.rows[1:] for layer in row.get("test_stability", {}).values()]


def _is_stand_in(run: Run) -> bool:
    return run.config["model"]["variant"] not in ("S/32", "B/16")


def _title(run: Run) -> str:
    """Names the examples that a run trains on: `cifar100`, or the features of it and their network."""
    features, name = run.config.get("features"), printable(run.config["dataset"])
    if features:
        name = f"ImageNet's features of {name} ({features['network']} at {features['size']} pixels, frozen)"
    return f"A stand-in for V-MoE S/32 on JFT-300M: {name}" if _is_stand_in(run) else name


# The figure ----------------------------------------------------------------------------------------------------------


def figures(runs: pd.DataFrame) -> dict[str, Figure]:
    """Draws Figure 7, if there is a hard router to compare with."""
    on_test = final_runs(runs)
    return {"figure7": figure7(on_test)} if any(PRESENTATION.references(on_test["run"]).values()) else {}


def figure7(runs: pd.DataFrame) -> Figure:
    """Draws the precision minus the hard router's, with intervals: a row for each router, a panel for each length."""
    lengths = list(runs.groupby("steps"))
    rows = [len(group) for _, group in lengths]
    figure = Figure(figsize=(9, 1 + 0.3 * sum(rows) + 0.4 * len(rows)), layout="constrained")
    column = figure.subplots(len(rows), 1, sharex=True, squeeze=False, height_ratios=rows)[:, 0]
    for axes, (steps, group) in zip(column, lengths, strict=True):
        hards = PRESENTATION.references(group["run"])
        over = intervals(minus(group, hards, _METRIC))
        for place, (name, router) in enumerate(group["router.name"].items()):
            colour, _ = LOOKS.get(router, (BLACK, "-"))
            if hards[name] is None and router == "hard":
                axes.plot(0.0, place, "o", color=colour, markerfacecolor="white")
            elif over[name]["mean"] is not None:
                half = over[name]["interval95"]
                axes.errorbar(over[name]["mean"], place, xerr=half, color=colour, marker="o", capsize=3)
        axes.axvline(0.0, color=GREY, linewidth=0.8)
        axes.set_yticks(range(len(group)), router_cells(PRESENTATION, group)["router"])
        axes.set_ylim(len(group) - 0.5, -0.5)
        itself = axes.secondary_yaxis("right")
        itself.set_yticks(range(len(group)), markdown.value(group, _METRIC) + " %")
        itself.tick_params(length=0)
        axes.set_title(f"after {steps} steps; right: precision-at-1", loc="left")
    column[-1].set_xlabel("test precision-at-1 minus that of the hard router, points")
    figure.suptitle(_title(runs["run"].iloc[0]), fontsize=10)
    return figure


# The finding, the pages and the command ------------------------------------------------------------------------------


def precision(results: Path) -> Finding | None:
    """Judges the paper's router, ten iterations of Dykstra's algorithm, against the hard one after most steps.

    Further seeds decide where there are any: they had no part in what led to the comparison.
    On ImageNet's features, if there are such results.
    """
    candidates = (final_runs(load(results / name)) for name in (ON_TOKENS, "vmoe"))
    for runs in (runs for runs in candidates if len(runs)):
        papers = runs["run"][(runs["router.name"] == "relaxed") & (runs["router.dykstra"] == 10)]
        if papers.empty:
            return None
        run = max(papers, key=lambda run: (run.config["steps"], run.config["seeds"]))
        hard = PRESENTATION.references(runs["run"])[run.name]
        template = f"both tuned, {run.config['steps']:,} steps: precision {{}}"
        verdict = judged(difference(run, hard, _METRIC) if hard else None, template)
        on = finding.STAND_IN if _is_stand_in(run) else finding.PAPERS_TASK
        return where_possible(verdict, on, as_in_paper=not _is_stand_in(run))
    return None


def blocks(results: Path) -> dict[str, list[str]]:
    """Returns the tables of the pages, of the shortest runs on test, by the names of their blocks."""
    made, off_pages = {}, [*_ROUTING, "stability, %", "stability minus hard"]
    for name in (ON_TOKENS, "vmoe"):
        if len(runs := final_runs(load(results / name))):
            steps = runs["steps"].min()
            rows = test_rows(runs[runs["steps"] == steps]).drop(columns=off_pages)
            made[f"{name}, {steps} steps"] = markdown.table(rows, text=1)[:-1]
    return made | _neighbours(results / ON_TOKENS / "batches")


def _neighbours(directory: Path) -> dict[str, list[str]]:
    """Returns the tables of the records of `batches.py`: precision by batch, tokens alone, and loads."""
    tables: dict[str, list[dict[str, str]]] = {"precision by batch": [], "tokens alone": [], "loads by batch": []}
    precision, alone, loads = tables.values()
    for path in sorted(directory.glob("*.json")):
        run = read_object(path, "make it again")["run"]
        router, trained = method(dict(leaves(run["config"], prefix=""))), run["config"]["moe"]["group_images"]
        rows = {(row["way"], row["images"]): row for row in run["rows"]}
        batches = pd.DataFrame(
            {size: row["precision"] for (way, size), row in rows.items() if way == "batch"}, dtype=float
        )
        precision.append({"router": router} | {f"{size:,}": markdown.cell(values) for size, values in batches.items()})
        least, most = batches.columns.min(), batches.columns.max()
        single = pd.Series(rows["alone", least]["precision"], dtype=float)
        over = {f"minus batches of {size}": single - batches[size] for size in (least, trained)}
        over_cells = {name: markdown.cell(values, signed=True) for name, values in over.items()}
        changed = {"changed by the batch, %": markdown.cell(run["changed"])}
        alone.append({"router": router, "alone, %": markdown.cell(single), **over_cells, **changed})
        for (way, size), row in rows.items():
            if size == trained or (way == "alone" and size == most):
                cells = {column: markdown.cell(row[field]) for field, column in _LOADS.items()}
                loads.append({"router": f"{router}, {_WAYS[way]}", "images": f"{size:,}", **cells})
    made = {f"{ON_TOKENS}, {name}": pd.DataFrame(rows) for name, rows in tables.items() if rows}
    return {name: markdown.table(rows, text=1)[:-1] for name, rows in made.items()}


make = functools.partial(making.make, PRESENTATION, tables, figures)  # takes the directory of the runs

if __name__ == "__main__":
    console.run(lambda arguments: making.on_directory("experiments.vmoe.report", making.DOC, make, arguments))
