"""The tables, figures and findings of the pruning experiment: `python -m experiments.mnist_pruning.report DIR`."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from experiments.core import console
from experiments.core.kinds import Fields
from experiments.core.record.summary import interval
from experiments.core.report import finding, making, markdown
from experiments.core.report.finding import Finding, Numbers, Verdict, judged
from experiments.core.report.frame import (
    difference,
    final,
    first_where,
    history,
    intervals,
    minus,
    over_seeds,
    sign_test,
)
from experiments.core.report.presentation import Presentation
from experiments.core.report.results import Run
from experiments.core.report.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, Look, bars, curve
from experiments.mnist_pruning.methods import KINDS, METHODS

BUDGETS = {"network": "the whole network", "matrix": "each matrix", "row": "each unit"}
# The name of each method, and the look of its curve; the paper's methods have solid lines. One that is not here has its
# name in the config, and a black line.
LOOKS: dict[str, tuple[str, Look]] = {
    "dense": ("dense", (GREY, "-")),
    "hard": ("hard top-k", (BLUE, "-")),
    "relaxed": ("relaxed top-k", (RED, ":")),
    "straight_through": ("hard, relaxed gradient", (SKY, "--")),
    "ot_straight_through": ("hard, optimal-transport gradient", (BLACK, "--")),
    "mask_straight_through": ("hard, gradient of a mask", (PURPLE, "-.")),
    "hard_concrete": ("hard-concrete L0 gates", (SKY, ":")),
    "ista": ("iterative soft-thresholding", (BLACK, ":")),
    "identity_straight_through": ("hard, gradient to all", (GREY, "-.")),
    "st3": ("ST-3", (BLACK, "-.")),
    "gradual": ("gradual magnitude pruning", (GREEN, "-.")),
    "movement": ("movement pruning", (RED, "-.")),
    "rigl": ("RigL", (SKY, "-.")),
    "topkast": ("Top-KAST", (ORANGE, "-.")),
    "str": ("soft threshold reparameterisation", (PURPLE, "-.")),
}
_ANNEALED = {2.0: ORANGE, 1.5: SKY, 4 / 3: PURPLE}  # the colours of the annealed operator, by p
# The fields of the paper's Section 6.
_AS_IN_PAPER = {
    "method": "relaxed",
    "form": "operator",
    "lam.schedule": "constant",
    "lam.start": 1e-4,
    "lam_times_size": False,
    "debias": False,
    "hard_after": 1.0,
    "density_schedule.name": "constant",
}
_PAPERS = 0.1  # the share of each matrix that the paper keeps
_ALL_LAYERS, _SLIDES = ("mnist", _PAPERS, -3, (1, 2, 3)), ("mnist", _PAPERS, -2, (2, 3))  # of `sections`
# What papers report for LeNet-300-100: the share of weights that are not 0 and the test error, in %, of one network. As
# Molchanov, Ashukha and Vetrov (2017, "Variational Dropout Sparsifies Deep Neural Networks") compare them.
LENET = "mnist-300-100"
PUBLISHED = {
    "pruning and training again (Han et al. 2015)": (8.0, 1.59),
    "soft weight sharing (Ullrich et al. 2017)": (4.3, 1.94),
    "dynamic network surgery (Guo et al. 2016)": (1.8, 1.99),
    "sparse variational dropout (Molchanov et al. 2017)": (1.5, 1.92),
}
_ON_PAPERS_SETTING = """\
Mean ± half width of the 95 % t-interval over seeds; *minus hard* is paired by seed, at the same learning
rate where there is such a run. *Hardened* keeps the largest weights only, as many as the density allows.
*Hardened epochs to it*: until the largest weights alone have the error that hard top-k ends with, by seed,
or how many seeds get there.
"""
_ON_BEST = """\
A cosine learning rate, at {settings}. The error is that of the largest weights
alone, as many as the density allows; of the dense network, of all. *Lost*: seeds that err in more than half of the
images, and twice as often as the median. *Minus* is paired by seed.
"""
_TICKS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 90)
_MARKERS = "osD^v"


# Names and groups of runs --------------------------------------------------------------------------------------------


def _shown(method: str) -> tuple[str, Look]:
    """Returns the name and the look of a method in the config."""
    return LOOKS.get(method, (method.replace("_", " "), (BLACK, "-")))


def method_of(fields: Fields) -> str:
    """Names the method of a config; the relaxed top-k has a name for each course of lam."""
    name, _ = _shown(fields["method"])
    if fields["method"] == "mask_straight_through":
        return f"hard, {fields['mask.name']} gradient"
    if fields["method"] != "relaxed":
        return name
    if _is_as_in_paper(fields):
        return f"{name} at the paper's lam"
    courses = {"geometric": f"annealed {name}", "support": f"{name} with falling support"}
    return courses.get(fields["lam.schedule"], name)


def _is_as_in_paper(fields: Fields) -> bool:
    """Returns whether operator and lam are those of the paper's Section 6, from the first step to the last."""
    return _AS_IN_PAPER.items() <= fields.items()


def _look(fields: Fields) -> Look:
    """Returns the colour and dashes of a run's curve."""
    if fields["method"] != "relaxed":
        return _shown(fields["method"])[1]
    if fields["lam.schedule"] == "constant":
        return (RED if fields["p"] == 2 else GREEN), "-" if _is_as_in_paper(fields) else ":"
    return _ANNEALED.get(fields["p"], BLUE), "--"


def _task(fields: Fields) -> str:
    """Returns the data set, with the network where that is not the paper's: `mnist`, or `cifar100-resnet20`."""
    dataset, network = fields["dataset"], fields["network"]
    if network != "mlp":
        return f"{dataset}-{network}{fields['model.depth'] if network == 'resnet' else ''}"
    hidden = tuple(fields["hidden"])
    return dataset if hidden == (32, 32) else "-".join([dataset, *map(str, hidden)])


def columns(run: Run) -> dict[str, Any]:
    """Returns what tables and figures group runs by."""
    fields, method = run.fields, method_of(run.fields)
    p = f", p = {markdown.p_name(fields['p'])}" if KINDS.is_read("p", fields) else ""
    return {
        "called": method,
        "called_with_p": method + p,  # without the settings that are chosen for it
        "look": _look(fields),
        "as_in_paper": _is_as_in_paper(fields),
        "annealed": (fields["method"], fields["lam.schedule"]) == ("relaxed", "geometric"),
        # By the name that the suite gave it: `best/...` and `why/...` are parts of their own, all else is in the
        # paper's setting, where `-tuned-` marks a learning rate that was chosen.
        "tuned": "-tuned-" in run.name,
        "part": next((part for part in ("best", "why") if part in run.name.split("/")), ""),
        "task": _task(fields),
        "layers": tuple(fields.get("prune_layers") or ()),  # empty where all matrices but embeddings are pruned
    }


def order(run: Run) -> tuple[Any, ...]:
    """Returns the place of a run: by density, method, settings of the relaxed operator, and rate; tuned ones last."""
    fields = run.fields
    relaxed: tuple[Any, ...] = ()
    if KINDS.is_read("p", fields):
        start = fields["lam.start"] if KINDS.is_read("lam.start", fields) else 0.0
        relaxed = (fields["lam.schedule"], not _is_as_in_paper(fields), -fields["p"], start)
    method = list(METHODS).index(fields["method"])
    tuned = "-tuned-" in run.name
    return (tuned, -fields["density"], method, *relaxed, fields["optimizer.learning_rate"], run.name)


PRESENTATION = Presentation(
    experiment="mnist_pruning",
    kinds=KINDS,
    method=method_of,
    baseline="hard",
    order=order,
    columns=columns,
    setting=("optimizer", "density_schedule"),
    always=("p",),
    names={
        "debias": "rescaled",
        "density_schedule.end": "density falls until",
        "density_schedule.name": "density",
        "lam.end": "last lam",
        "lam.schedule": "lam's schedule",
        "lam.start": "lam",
        "lam_times_size": "lam times the number of weights",
    },
)
# Compares runs with the dense network, whatever share of the weights they keep.
AGAINST_DENSE = dataclasses.replace(PRESENTATION, setting=(*PRESENTATION.setting, "prune_layers", "budget", "density"))
# Names runs of one method by their settings alone.
BY_SETTING = dataclasses.replace(PRESENTATION, method=lambda fields: "", always=())

load = functools.lru_cache(maxsize=2)(lambda directory: PRESENTATION.load(directory)[0])


def sections(runs: pd.DataFrame, split: str) -> dict[Any, pd.DataFrame]:
    """Groups the runs in the paper's setting by task, density and layers, most layers first as in the paper's text."""
    own = runs[(runs["part"] == "") & (runs["split"] == split)]
    return dict(iter(own.groupby(["task", "density", -own["layers"].map(len), "layers"])))


def _at_best(runs: pd.DataFrame, split: str = "test") -> pd.DataFrame:
    return runs[(runs["part"] == "best") & (runs["split"] == split)]


def sections_at_best(runs: pd.DataFrame) -> dict[Any, pd.DataFrame]:
    """Groups the pruned runs of methods at their best by task, budget and density, the highest density first."""
    pruned = _at_best(runs)
    pruned = pruned[pruned["method"] != "dense"]
    return dict(iter(pruned.groupby(["task", pruned["budget"].map(list(BUDGETS).index), -pruned["density"]])))


def dense_at_best(section: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the dense network at its best, for the task of a section; empty if there is none."""
    at_best = _at_best(runs)
    return at_best[(at_best["task"] == section["task"].iloc[0]) & (at_best["method"] == "dense")][:1]


def _error(run: Run) -> list[list[float | None]]:
    """Returns by seed the errors of the largest weights alone, for the dense network that of all."""
    return [run.final("test_error" if run.config["method"] == "dense" else "hardened_error")]


def epochs_to_hard(run: Run, hard: Run) -> "pd.Series[float]":
    """Returns by seed the first epoch in which the largest weights alone have at most hard top-k's last error."""
    errors = history(run, "hardened_error")
    ends = pd.Series(hard.final("test_error"), hard.summary["seeds"], dtype=float)
    return first_where(errors <= ends.reindex(errors.columns))


# Tables --------------------------------------------------------------------------------------------------------------


def tables(runs: pd.DataFrame, chosen: frozenset[str]) -> list[str]:
    """Returns the lines of all tables; `chosen` names the runs that won a choice on validation."""
    lines: list[str] = []
    tests, sweeps = sections(runs, "test"), sections(runs, "validation")
    for key, section in tests.items():
        lines += markdown.section(f"Test, {_title(key, section)}", paper_rows(section, sweeps.get(key, section)))
    lines += _ON_PAPERS_SETTING.split("\n") if tests else []
    for key, section in sweeps.items():
        lines += markdown.section(f"Validation, {_title(key, section)}", _tried(section, chosen))
    at_best, tried = sections_at_best(runs), _at_best(runs, "validation")
    methods = "every method at its best" if len(tried) else "methods at given settings"
    for (task, _, _), section in at_best.items():
        lines += markdown.section(f"Test, {task}: {methods}, {_asked(section)} kept", best_rows(section, runs))
    settings = "the best on validation of the settings below" if len(tried) else "given settings"
    lines += _ON_BEST.format(settings=settings).split("\n") if at_best else []
    for _, section in tried.groupby(["task", "budget", "density"], sort=False):
        lines += markdown.section(f"Validation, {methods}, {_asked(section)} kept", _tried(section, chosen))
    why = runs[(runs["part"] == "why") & (runs["split"] == "test")]
    if len(why):
        title = f"Test, why the paper's lam fails: lam = 1e-4 under what is open, {_lengths(why)} epochs"
        lines += markdown.section(title, _why_rows(why, runs))
    return lines


def _asked(section: pd.DataFrame) -> str:
    return f"{100 * section['density'].iloc[0]:g} % of {BUDGETS[section['budget'].iloc[0]]}"


def _title(key: Sequence[Any], section: pd.DataFrame) -> str:
    task, density, _, pruned = key
    part = f"layers {' and '.join(map(str, pruned))}" if pruned else "every matrix but embeddings"
    return f"{task}: {100 * density:g} % of {part} kept, {_lengths(section)} epochs"


def _lengths(runs: pd.DataFrame) -> str:
    return " or ".join(map(str, sorted({run.summary["epochs"] for run in runs["run"]})))


def _named(section: pd.DataFrame, sweep: pd.DataFrame) -> dict[str, Any]:
    """Names each run: its method, and the fields in which it differs from others of the section and the sweep."""
    in_titles = ("split", "epochs", "steps", "density", "budget", "prune_layers")
    both = [*section["run"], *sweep["run"].drop(section.index, errors="ignore")]
    return {"method": section["called"], "setting": PRESENTATION.settings(both, given=in_titles)[: len(section)]}


def paper_rows(section: pd.DataFrame, sweep: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of runs on test in the paper's setting, named by what differs there and in the sweep."""
    hard = PRESENTATION.references(section["run"])

    def epochs(run: Run) -> str:
        if (other := hard[run.name]) is None:
            return "-"
        reached = epochs_to_hard(run, other)
        there = reached.count()
        return markdown.cell(reached) if there == len(reached) else f"in {there} of {len(reached)} seeds"

    cells = {
        "test error, %": "test_error",
        "minus hard": markdown.minus_reference(section, hard, "test_error"),
        "density in training, %": markdown.cells(100 * final(section, "train_density")),
        "hardened error, %": "hardened_error",
        "hardened epochs to it": section["run"].map(epochs),
    }
    return markdown.rows(section, _named(section, sweep) | cells)


def _tried(section: pd.DataFrame, chosen: frozenset[str]) -> pd.DataFrame:
    """Returns the rows of candidates; the hardened error chooses, for the dense network its own."""
    metrics = {"validation error, %": "valid_error", "hardened, %": "hardened_error"}
    return markdown.rows(section, _named(section, section) | metrics, chosen)


def best_rows(section: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of methods at their best: the dense network, then a section of `sections_at_best`."""
    shown = pd.concat([dense_at_best(section, runs), section])
    errors = final(shown, _error)
    cells = _named(shown, _at_best(runs, "validation")) | {
        "test error, %": markdown.cells(errors),
        "median": errors.median(axis=1).map("{:.2f}".format),
        "lost": _lost(shown).map(str),
    }
    for rival in ("identity_straight_through", "hard", "gradual", "movement"):
        name = "gradient to all" if rival == "identity_straight_through" else rival
        references = PRESENTATION.references(section["run"], rival)
        cells[f"minus {name}"] = markdown.minus_reference(section, references, _error)
    to_dense = AGAINST_DENSE.references(shown["run"], "dense")
    return markdown.rows(shown, cells | {"minus dense": markdown.minus_reference(shown, to_dense, _error)})


def _lost(runs: pd.DataFrame) -> "pd.Series[int]":
    """Returns how many seeds diverged, or err in more than half of the images and twice as often as usual."""
    errors = final(runs, _error)
    return runs["seeds"] - errors.le(np.fmax(50.0, 2 * errors.median(axis=1)), axis="index").sum(axis=1)


def _why_rows(why: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of relaxed runs at the paper's lam, one for each thing left open, beside hard top-k."""
    relaxed = why[why["method"] == "relaxed"]
    relaxed = relaxed.assign(open=BY_SETTING.settings(relaxed["run"], given=("p",))).sort_values("open", kind="stable")
    hard = PRESENTATION.references(runs["run"][(runs["split"] == "test") & ~runs["tuned"]])
    hards = relaxed.index.to_series().map(hard)
    cells = {
        "what is open": relaxed["open"].replace("", "as elsewhere"),
        "p": relaxed["p"].map(markdown.p_name),
        "hard top-k, %": markdown.cells(final(hards, "test_error")),
        "relaxed, %": "test_error",
        "minus hard": markdown.minus_reference(relaxed, hard, "test_error"),
        "density in training, %": markdown.cells(100 * final(relaxed, "train_density")),
    }
    return markdown.rows(relaxed, cells)


def blocks(results: Path) -> dict[str, list[str]]:
    """Returns the lines of the tables on the pages of results, by the names of their blocks; none without runs."""
    runs, vit = load(results / "mnist_pruning"), load(results / "cifar100_pruning")
    if runs.empty or vit.empty:
        return {}
    tests = sections(runs, "test")
    key, section = next(iter(tests.items()))
    # The runs of the paper's Figure 5, and that with lam annealed.
    is_headline = section["method"].isin(["dense", "hard", "ot_straight_through"]) | section["as_in_paper"]
    is_headline = (is_headline | section["annealed"]) & ~section["tuned"]
    rows = paper_rows(section, sections(runs, "validation")[key])
    rows["method"] = [", ".join(filter(None, names)) for names in zip(rows["method"], rows["setting"], strict=True)]
    return {
        "pruning in the paper's setting": markdown.table(
            rows[is_headline][["method", "test error, %", "minus hard"]], text=1
        )[:-1],
        "pruning as on the slides": markdown.table(_by_seed(tests[_SLIDES]), text=1)[:-1] if _SLIDES in tests else [],
        "methods at their best": _by_density(runs),
        "methods on the transformer": _by_density(vit),
    }


def _by_seed(section: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of hard top-k and of runs at the paper's lam, whose means depend on a few lost seeds.

    *Lower in a pair* is the share of all pairs of seeds, one of each run, in which the relaxed one has the lower error:
    how often an experiment that trains each once favours it.
    """
    hard = PRESENTATION.references(section["run"])
    shown = section[(section["method"] == "hard") | section["as_in_paper"]]
    over = minus(shown, hard, "test_error")

    def pairs(run: Run) -> str:
        if (other := hard[run.name]) is None:
            return "-"
        mine, others = (np.array(one.final("test_error"), float) for one in (run, other))
        return f"{100 * np.less.outer(mine, others).mean():.0f} %"

    cells = {
        "method": shown["called_with_p"],
        "test error, %": "test_error",
        "median": final(shown, "test_error").median(axis=1).map("{:.2f}".format),
        "minus hard": markdown.cells(over, signed=True),
        "higher in": [
            "-" if hard[name] is None else "{} of {}, p = {:.2g}".format(*sign_test(row))
            for name, row in over.iterrows()
        ],
        "lower in a pair": shown["run"].map(pairs),
    }
    return markdown.rows(shown, cells)


def _by_density(runs: pd.DataFrame) -> list[str]:
    """Returns the lines of the errors at their best: a column for the budget of the paper, then those of the network.

    Where seeds are lost, a mean says nothing: the cell has the median of all seeds.
    """
    cells: dict[tuple[str, str], str] = {}
    for (_, budget, negative), section in sorted(sections_at_best(runs).items(), key=lambda item: item[0][1] == 0):
        shown = section if budget == 0 else section[section["density"] == _PAPERS]
        column = f"{-100 * negative:g} %{'' if budget == 0 else ' of each matrix'}"
        errors = final(shown, _error)
        rows = zip(shown["called_with_p"], markdown.cells(errors), errors.median(axis=1), _lost(shown), strict=True)
        for (name, cell, median, lost), seeds in zip(rows, shown["seeds"], strict=True):
            cells[name, column] = f"median {median:.2f}, {lost} of {seeds} lost" if lost else cell
    return markdown.table(markdown.pivot("method", cells), text=1)[:-1]


# Figures -------------------------------------------------------------------------------------------------------------


def figures(runs: pd.DataFrame) -> dict[str, Figure]:
    """Draws Figure 5 for each set of layers, and the errors at their best by density; returns them by name."""
    drawn: dict[str, Figure] = {}
    for (task, kept, _, pruned), section in sections(runs, "test").items():
        # The names say nothing of task and density where these are the paper's.
        where = "" if (task, kept) == ("mnist", _PAPERS) else f"-{task}-{kept:g}"
        shown = section[~section["tuned"]]
        # A table shows the gradients of many masks behind one hard top-k.
        if len(shown) and "mask_straight_through" not in set(shown["method"]):
            drawn[f"figure5{where}-layers{''.join(map(str, pruned)) or 'all'}"] = figure5(shown)
    pruned_runs = pd.concat([*sections_at_best(runs).values(), runs[:0]])
    for task, of_network in pruned_runs[pruned_runs["budget"] == "network"].groupby("task"):
        suffix = "in-brief" if task == "mnist" else task
        drawn[f"error-against-density-{suffix}"] = error_against_density(of_network, runs)
    return drawn


def figure5(section: pd.DataFrame) -> Figure:
    """Draws test error, and below it the weights that are not 0, against time and epochs; bands are 95 % intervals."""
    figure = Figure(figsize=(12, max(5.6, 3 + 0.36 * len(section))), layout="constrained")
    panels = figure.subplots(2, 2, sharex="col", sharey="row", height_ratios=(2, 1))
    shade = 0.15 if len(section) <= 7 else 0.07  # bands of many runs lie on top of each other
    ends = []
    for run, look in zip(section["run"], section["look"], strict=True):
        errors = intervals(history(run, "test_error")).to_list()
        shares = intervals(100 * history(run, "train_density")).to_list()
        seconds = [row["seconds"] / len(run.summary["seeds"]) for row in run.rows]
        for (above, below), x in zip(panels.T, (seconds, [row["epoch"] for row in run.rows]), strict=True):
            curve(above, x, errors, look, shade=shade, linewidth=1.8)
            curve(below, x, shares, look, shade=0, linewidth=1.8)
        ends.append(errors[-1])
    (time, epochs), (time_below, epochs_below) = panels
    time.set(ylabel="test error, %")
    time_below.set(xlabel="training time, s per seed (seeds train together)", ylabel="weights\nnot 0, %")
    epochs_below.set(xlabel="epochs")
    lowest, least = (min(np.nanmin(line.get_ydata()) for line in axes.get_lines()) for axes in (epochs, epochs_below))
    _log_axis(time, max(0.5, 0.85 * lowest), 100, _TICKS)
    _log_axis(time_below, 0.8 * least, 125, (1, 2, 5, 10, 20, 50, 100))
    first = section.iloc[0]
    pruned = f"layers {', '.join(map(str, first['layers']))}" if first["layers"] else "all matrices but embeddings"
    figure.suptitle(f"{first['task']}: {100 * first['density']:g} % of the weights of {pruned} kept")
    curves = zip(epochs.get_lines(), PRESENTATION.labels(section["run"]), ends, strict=True)
    worst_first = sorted(curves, key=lambda item: -_mean_or_inf(item[2]))
    figure.legend(
        [line for line, _, _ in worst_first],
        [f"{label}: {_in_words(end)}" for _, label, end in worst_first],
        loc="outside right center",
        fontsize=9,
        labelspacing=0.7,
        title="test error after the last epoch",
        title_fontsize=9,
        alignment="left",
    )
    return figure


def _mean_or_inf(value: Numbers) -> float:
    return float("inf") if value["mean"] is None else value["mean"]


def _in_words(end: Numbers) -> str:
    if end["mean"] is None:
        return "diverged"
    return f"{end['mean']:.1f} ± {end['interval95']:.1f}" if end["interval95"] else f"{end['mean']:.1f}"


def _log_axis(axes: Axes, low: float, high: float, ticks: Sequence[int]) -> None:
    axes.set(ylim=(low, high), yscale="log")  # limits first: a scale finds none for a flat line
    _ticks(axes.yaxis, ticks)


def _ticks(axis: Axis, values: Sequence[float]) -> None:
    axis.set_major_locator(FixedLocator(values))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:g}")


def error_against_density(pruned: pd.DataFrame, runs: pd.DataFrame) -> Figure:
    """Draws the error of the main methods against the share of the network's weights that is kept, dense as a band.

    Points are moved aside a little, so that intervals do not cover each other. The annealed relaxed top-k has
    the p that won on validation. Crosses are numbers of papers for LeNet-300-100.
    """
    main = pruned["method"].isin(["hard", "identity_straight_through", "st3", "gradual", "movement"])
    main |= pruned["annealed"] & (pruned["p"] == _best_p(pruned, runs))
    figure = Figure(figsize=(7.0, 4.6), layout="constrained")
    axes = figure.subplots()
    shown: dict[str, Any] = {}
    for run in dense_at_best(pruned, runs)["run"]:
        error = interval(run.final("test_error"))
        half = error["interval95"] or 0.0
        axes.axhspan(error["mean"] - half, error["mean"] + half, color=GREY, alpha=0.2, linewidth=0)
        shown["dense"] = axes.axhline(error["mean"], color=GREY, linewidth=1.5)
    for i, (name, members) in enumerate(pruned[main].groupby("called_with_p", sort=False)):
        x = [100 * density * 1.02 ** (i - 2) for density in members["density"]]
        errors = intervals(final(members, "hardened_error"))
        marker = {"marker": _MARKERS[i % 5], "markersize": 5, "linewidth": 1.5}
        shown[name] = bars(axes, x, list(errors), members["look"].iloc[0], **marker)
    if pruned["task"].iloc[0] == LENET:
        (shown["other methods, as published"],) = axes.plot(*zip(*PUBLISHED.values(), strict=True), "x", color=BLACK)
    axes.set_xscale("log")
    _ticks(axes.xaxis, sorted(100 * pruned["density"].unique()))
    low, high = axes.get_ylim()
    if sum(low <= tick <= high for tick in _TICKS) > 1:  # else no tick lies among the errors
        axes.set_yscale("log")
        _ticks(axes.yaxis, _TICKS)
    axes.set(xlabel="weights kept, %", ylabel="test error, %")
    axes.legend(list(shown.values()), list(shown), loc="upper right", fontsize=9)
    return figure


def _best_p(pruned: pd.DataFrame, runs: pd.DataFrame) -> float | None:
    """Returns the p of the annealed relaxed top-k that erred least on validation; where none was tried, the first."""
    annealed, tried = pruned[pruned["annealed"]], _at_best(runs, "validation")
    same = (tried[["task", "budget"]] == pruned[["task", "budget"]].iloc[0]).all(axis=1)
    rivals = tried[same & tried["annealed"] & tried["p"].isin(annealed["p"])]
    errors = final(rivals, "hardened_error").mean(axis=1).dropna()
    if len(errors):
        return rivals.loc[errors.idxmin(), "p"]
    return annealed["p"].iloc[0] if len(annealed) else None


# Findings ------------------------------------------------------------------------------------------------------------


def _finding(
    results: Path, rival: str, judge: Callable[[Run, Run], Verdict], *, searched: bool = True
) -> Finding | None:
    """Compares the relaxed top-k of p = 4/3 with a rival, all three layers of the MLP pruned to 10 %.

    Args:
      results: the directory of results.
      rival: the method that it is compared with.
      judge: takes the relaxed run and its rival.
      searched: whether lam falls in runs that are the best on validation of as many settings; else in those at the
        paper's learning rate, as the first verdict has it, which is at the paper's lam.
    """
    runs = load(results / "mnist_pruning")
    if runs.empty:
        return None
    at_papers_rate = sections(runs, "test").get(_ALL_LAYERS, runs[:0])
    at_papers_rate = at_papers_rate[~at_papers_rate["tuned"]]
    at_best = sections_at_best(runs).get(("mnist", 1, -_PAPERS), runs[:0])

    def verdict(runs: pd.DataFrame, course: str, how: str) -> Verdict | None:
        ours, others = runs["run"][runs[course] & (runs["p"] == 4 / 3)], runs["run"][runs["method"] == rival]
        if ours.empty or others.empty:
            return None
        answer, text = judge(ours.iloc[0], others.iloc[0])
        return Verdict(answer, f"{how}: {text}")

    stated = verdict(at_papers_rate, "as_in_paper", "lam = 1e-4")
    if searched:
        tuned = verdict(at_best, "annealed", "both tuned, lam falls")
    else:
        tuned = verdict(at_papers_rate, "annealed", "lam falls")
    return Finding(stated, tuned, finding.PAPERS_TASK) if stated else None


def accuracy(results: Path) -> Finding | None:
    """Judges whether the error at the end is lower than hard top-k's."""

    def judge(ours: Run, hard: Run) -> Verdict:
        return judged(difference(ours, hard, "hardened_error"), "error {}", lower=True)

    return _finding(results, "hard", judge)


def speed(results: Path) -> Finding | None:
    """Judges whether the largest weights alone have hard top-k's last error after fewer epochs than hard top-k's own.

    A seed that never has it counts as one that has it an epoch after the end. Says how long an epoch takes, too.
    """

    def judge(ours: Run, hard: Run) -> Verdict:
        reached = epochs_to_hard(ours, hard)
        never, seeds = reached.isna().sum(), len(reached)
        reached = reached.fillna(ours.summary["epochs"] + 1)
        over = over_seeds(reached - epochs_to_hard(hard, hard))
        seconds = [run.rows[-1]["seconds"] / run.summary["epochs"] for run in (ours, hard)]
        shown = markdown.signed(over).lstrip("+-")
        text = f"{shown} epochs {'sooner' if _mean_or_inf(over) < 0 else 'later'}"
        if never:
            text = f"never in {seeds} seeds" if never == seeds else f"{text} ({never} of {seeds} seeds never)"
        text += f"; an epoch {seconds[0] / seconds[1]:.1f} times as long"
        return Verdict(finding.of_sign(-finding.sign(over)), text)

    return _finding(results, "hard", judge)


def density(results: Path, margin: float) -> Finding | None:
    """Judges whether the share of weights that are not 0 at the end is 10 %, to a margin in points."""

    def judge(ours: Run, hard: Run) -> Verdict:
        share = interval(ours.final("train_density"))
        is_a_tenth = abs(100 * _mean_or_inf(share) - 100 * _PAPERS) <= margin
        return Verdict(finding.of_fact(is_a_tenth), f"{markdown.plus_minus(share, scale=100)} %")

    return _finding(results, "hard", judge)


def optimal_transport(results: Path, margin: float) -> Finding | None:
    """Judges whether a hard top-k with its gradient errs as the relaxed one does, to a margin in points."""

    def judge(ours: Run, rival: Run) -> Verdict:
        transports = difference(rival, ours, "test_error")
        text = f"transport's error (epsilon tuned) {finding.in_words(transports)}"
        return Verdict(finding.of_level(transports, margin), text)

    return _finding(results, "ot_straight_through", judge, searched=False)


make = functools.partial(making.make, PRESENTATION, tables, figures)  # takes the directory of the runs

if __name__ == "__main__":
    console.run(lambda arguments: making.on_directory("experiments.mnist_pruning.report", making.DOC, make, arguments))
