"""Tables, figures and findings of the pruning experiment: `python -m experiments.mnist_pruning.report DIR`.

Read it from top to bottom: how runs are called and grouped, the tables, the figures, and the findings on the paper's
claims, which compare runs in the paper's setting with hard top-k.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from experiments.core import console
from experiments.core.kinds import Fields, is_of
from experiments.core.record.summary import interval
from experiments.core.report import finding, making, markdown
from experiments.core.report.finding import Finding, Numbers, Verdict, in_words, sign
from experiments.core.report.paired import minus, sign_test
from experiments.core.report.presentation import Presentation
from experiments.core.report.results import Run, grouped
from experiments.core.report.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, Look, bars, curve
from experiments.mnist_pruning.methods import KINDS, METHODS

BUDGETS = {"network": "the whole network", "matrix": "each matrix", "row": "each unit"}

# By method, what it is called and the look of its curve; solid lines are those of the paper.
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
# Colours by p, where lam falls by a schedule of its own, or by the support.
_ANNEALED = {2.0: ORANGE, 1.5: SKY, 4 / 3: PURPLE, 1.25: BLACK}
_BY_SUPPORT = {2.0: RED, 1.5: BLUE, 4 / 3: GREEN}
# Of a hard top-k with the gradient of a mask, by its name; others as LOOKS has it.
_MASKS = {"relaxed_p2": RED, "relaxed_p3_2": ORANGE, "relaxed_p4_3": GREEN, "sigmoid": BLUE, "lapsum": SKY}
_MASKS |= {"dftopk": BLACK}
_PAPERS = {"method": "relaxed", "lam.schedule": "constant", "lam.start": 1e-4, "lam_times_size": False}
_PAPERS |= {"debias": False, "form": "operator", "hard_after": 1.0, "density_schedule.name": "constant"}
_FIGURE5 = {"dataset": "mnist", "split": "test", "density": 0.1, "epochs": 30, "budget": "matrix"}
_SLIDES = ("mnist", 0.1, -2, (2, 3))  # the section of the paper's slides
_FIGURE5 |= {"optimizer.learning_rate": 1e-2, "optimizer.schedule": "constant", "prune_layers": [1, 2, 3]}


# Names, order and groups of runs -------------------------------------------------------------------------------------


def is_papers(fields: Fields) -> bool:
    """Whether operator and lam are those of the paper's Section 6, from the first step to the last."""
    return _PAPERS.items() <= fields.items()


def method_of(fields: Fields) -> str:
    """The name of a method, by the fields of a config; the relaxed top-k has one for each course of lam."""
    name = LOOKS[fields["method"]][0]
    if fields["method"] == "mask_straight_through":
        return f"hard, {fields['mask.name']} gradient"
    if fields["method"] != "relaxed":
        return name
    if is_papers(fields):
        return f"{name} at the paper's lam"
    courses = {"geometric": f"annealed {name}", "support": f"{name} with falling support"}
    return courses.get(fields["lam.schedule"], name)


def _look(fields: Fields) -> Look:
    if fields["method"] != "relaxed":
        colour, dashes = LOOKS[fields["method"]][1]
        is_mask = fields["method"] == "mask_straight_through"
        return (_MASKS.get(fields["mask.name"], colour) if is_mask else colour), dashes
    if fields["lam.schedule"] == "constant":
        return (RED if fields["p"] == 2 else GREEN), "-" if is_papers(fields) else ":"
    colours = _ANNEALED if fields["lam.schedule"] == "geometric" else _BY_SUPPORT
    return colours.get(fields["p"], BLUE), "--"


def _is_headline(fields: Fields) -> bool:
    """Whether a run is one of the paper's Figure 5, or that with lam annealed."""
    of_paper = fields["method"] in ("dense", "hard", "ot_straight_through") or is_papers(fields)
    is_annealed = (fields["method"], fields["lam.schedule"]) == ("relaxed", "geometric")
    return _FIGURE5.items() <= fields.items() and (of_paper or is_annealed)


def order(run: Run) -> tuple[Any, ...]:
    """The place of a run: by density, method, settings of the relaxed operator, and learning rate; tuned ones last."""
    fields = run.fields
    relaxed: tuple[Any, ...] = ()
    if KINDS.is_read("p", fields):
        start = fields["lam.start"] if KINDS.is_read("lam.start", fields) else 0.0
        relaxed = (fields["lam.schedule"], not is_papers(fields), -fields["p"], start)
    method = list(METHODS).index(fields["method"])
    return (is_tuned(run), -fields["density"], method, *relaxed, fields["optimizer.learning_rate"], run.name)


def is_tuned(run: Run) -> bool:
    """Whether a run is one of those at a learning rate chosen for their method, by the name the suite gives them."""
    return "-tuned-" in run.name


PRESENTATION = Presentation(
    experiment="mnist_pruning",
    kinds=KINDS,
    method=method_of,
    baseline="hard",
    order=order,
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
# Compares with the dense network, whose number of weights is none of its circumstances.
_OF_ALL_WEIGHTS = dataclasses.replace(
    PRESENTATION, setting=(*PRESENTATION.setting, "prune_layers", "budget", "density")
)
# Names runs by what the paper leaves open, where all of them have one method.
_OPEN = dataclasses.replace(PRESENTATION, method=lambda fields: "", always=())


def part_of(runs: Sequence[Run], part: str, split: str = "test") -> list[Run]:
    """The runs of a part of the suite: `best`, `why`; empty for the paper's setting."""
    parts = {"best", "why"}
    return [run for run in runs if run.config["split"] == split and "".join(parts & {*run.name.split("/")}) == part]


def task(run: Run) -> str:
    """The data set, with the network where that is not the paper's: `mnist`, or `cifar100-vit`."""
    dataset, network = run.config["dataset"], run.config["network"]
    return dataset if network == "mlp" else f"{dataset}-{network}"


def layers(run: Run) -> tuple[int, ...]:
    """The pruned layers by number; none where all matrices but embeddings are pruned."""
    return tuple(run.config.get("prune_layers") or ())


def sections(runs: Sequence[Run], split: str) -> dict[Any, list[Run]]:
    """The runs in the paper's setting by task, density and layers; the paper's text prunes all, so most come first."""

    def key(run: Run) -> tuple[Any, ...]:
        return task(run), run.config["density"], -len(layers(run)), layers(run)

    return grouped(sorted(part_of(runs, "", split), key=key), key)


def cells(runs: Sequence[Run]) -> dict[Any, list[Run]]:
    """The runs of every method at its best that prune, by task, budget and density; highest density first."""
    pruned = [run for run in part_of(runs, "best") if run.config["method"] != "dense"]

    def key(run: Run) -> tuple[Any, ...]:
        return task(run), list(BUDGETS).index(run.config["budget"]), -run.config["density"]

    return grouped(sorted(pruned, key=key), key)


def dense_at_best(section: Sequence[Run], runs: Sequence[Run]) -> list[Run]:
    """The dense network at its best, of the task of a section; none if there is none."""
    at_best = part_of(runs, "best")
    return [run for run in at_best if task(run) == task(section[0]) and run.config["method"] == "dense"][:1]


def kind(run: Run) -> str:
    """The method of a run, and p where it has one: without the rest, which is chosen for it."""
    p = f", p = {markdown.p_name(run.config['p'])}" if KINDS.is_read("p", run.fields) else ""
    return method_of(run.fields) + p


# Tables --------------------------------------------------------------------------------------------------------------

_ON_PAPERS_SETTING = """\
Mean ± half width of the 95 % t-interval over seeds; *minus hard* is paired by seed, at the same learning
rate where there is such a run. *Hardened* keeps the largest weights only, as many as the density allows.
*Hardened epochs to it*: until the largest weights alone have the error that hard top-k ends with, by seed,
or how many seeds get there.
"""
_ON_BEST = """\
A cosine learning rate, at the best on validation of as many settings of each kind as of any other that
prunes; the dense network has its learning rate alone to choose. The error is that of the largest weights
alone, as many as the density allows; of the dense network, of all. *Minus* is paired by seed.
"""


def tables(runs: Sequence[Run], chosen: frozenset[str]) -> list[str]:
    """The lines of all tables; `chosen` names the runs that won a choice on validation."""
    lines = []
    tests, sweeps = sections(runs, "test"), sections(runs, "validation")
    for key, section in tests.items():
        lines += markdown.section(f"Test, {_title(key, section)}", paper_rows(section, sweeps.get(key, section)))
    lines += _ON_PAPERS_SETTING.split("\n") if tests else []
    for key, section in sweeps.items():
        lines += markdown.section(f"Validation, {_title(key, section)}", _tried(section, chosen))
    at_best = cells(runs)
    for (dataset, _, _), section in at_best.items():
        asked = f"{100 * section[0].config['density']:g} % of {BUDGETS[section[0].config['budget']]}"
        title = f"Test, {dataset}: every method at its best, {asked} kept"
        lines += markdown.section(title, best_rows(section, runs))
    lines += _ON_BEST.split("\n") if at_best else []
    tried = grouped(part_of(runs, "best", "validation"), lambda run: (task(run), -run.config["density"]))
    for (_, density), section in tried.items():
        title = f"Validation, every method at its best, {-100 * density:g} % of the whole network kept"
        lines += markdown.section(title, _tried(section, chosen))
    if why := part_of(runs, "why"):
        title = f"Test, why the paper's lam fails: lam = 1e-4 under what is open, {_lengths(why)} epochs"
        lines += markdown.section(title, why_rows(runs))
    return lines


def _title(key: Sequence[Any], section: Sequence[Run]) -> str:
    dataset, density, _, pruned = key
    of = f"layers {' and '.join(map(str, pruned))}" if pruned else "every matrix but embeddings"
    return f"{dataset}: {100 * density:g} % of {of} kept, {_lengths(section)} epochs"


def _lengths(runs: Sequence[Run]) -> str:
    return " or ".join(map(str, sorted({run.summary["epochs"] for run in runs})))


def _named(section: Sequence[Run], sweep: Sequence[Run]) -> list[markdown.Cells]:
    """Method, and the fields in which each run differs from others of it, and from those tried on validation."""
    of_the_suite = ("split", "epochs", "steps", "density", "budget", "prune_layers")
    both = [*section, *(run for run in sweep if run not in section)]
    settings = PRESENTATION.settings(both, given=of_the_suite)
    return [
        {"method": method_of(run.fields), "setting": setting} for run, setting in zip(section, settings, strict=False)
    ]


def paper_rows(section: Sequence[Run], sweep: Sequence[Run]) -> list[markdown.Cells]:
    """The rows of a table of tests in the paper's setting."""
    hard = PRESENTATION.references(section)
    columns: markdown.Columns = {
        "test error, %": markdown.value("test_error"),
        "minus hard": markdown.over(hard, "test_error"),
        "density in training, %": markdown.value("train_density", scale=100),
        "hardened error, %": markdown.value("hardened_error"),
        "hardened epochs to it": lambda run: _epochs(reached(run, hard[run.name])),
    }
    return markdown.rows(_named(section, sweep), section, columns)


def reached(run: Run, hard: Run | None) -> Numbers | None:
    """By seed the first epoch in which the largest weights alone have at most the error that hard top-k ends with."""
    if hard is None:
        return None
    ends = dict(zip(hard.summary["seeds"], hard.final("test_error"), strict=True))

    def first(i: int, end: float | None) -> float | None:
        errors = ((row["epoch"], row["hardened_error"][i]) for row in run.rows)
        return next((epoch for epoch, error in errors if None not in (error, end) and error <= end), None)

    return interval([first(i, ends.get(seed)) for i, seed in enumerate(run.summary["seeds"])])


def _epochs(epochs: Numbers | None) -> str:
    """`1.20 ± 0.30`; unless all seeds get there, in how many they do."""
    if epochs is None:
        return "-"
    seeds = epochs["per_seed"]
    there = len(seeds) - seeds.count(None)
    return markdown.plus_minus(epochs) if there == len(seeds) else f"in {there} of {len(seeds)} seeds"


def _tried(section: Sequence[Run], chosen: frozenset[str]) -> list[markdown.Cells]:
    """The rows of candidates, which are chosen by the hardened error; the dense one by its own."""
    columns = {"validation error, %": markdown.value("valid_error"), "hardened, %": markdown.value("hardened_error")}
    return markdown.rows(_named(section, section), section, columns, chosen)


def best_rows(section: Sequence[Run], runs: Sequence[Run]) -> list[markdown.Cells]:
    """The rows of a table of methods at their best: the dense network, then those of a section of `cells`."""
    shown = [*dense_at_best(section, runs), *section]
    dense = _OF_ALL_WEIGHTS.references(shown, "dense")
    columns: markdown.Columns = {
        "test error, %": lambda run: markdown.plus_minus(_error(run)),
        "minus dense": markdown.over(dense, "hardened_error", "test_error"),
        "minus gradual": markdown.over(PRESENTATION.references(section, "gradual"), "hardened_error"),
        "minus movement": markdown.over(PRESENTATION.references(section, "movement"), "hardened_error"),
        "density in training, %": markdown.value("train_density", scale=100),
    }
    return markdown.rows(_named(shown, part_of(runs, "best", "validation")), shown, columns)


def _error(run: Run) -> Numbers | None:
    """The error of the largest weights alone; of all where the network is dense, which has no density to compare."""
    return run.end("test_error" if run.config["method"] == "dense" else "hardened_error")


def why_rows(runs: Sequence[Run]) -> list[markdown.Cells]:
    """The rows of relaxed runs at the paper's lam under what it leaves open, with the hard one to compare."""
    relaxed = [run for run in part_of(runs, "why") if run.config["method"] == "relaxed"]
    hard = PRESENTATION.references([run for run in runs if run.config["split"] == "test" and not is_tuned(run)])
    told = sorted(zip(_OPEN.settings(relaxed, given=("p",)), relaxed, strict=True), key=lambda pair: pair[0])

    first = [{"what is open": text or "as elsewhere", "p": markdown.p_name(run.config["p"])} for text, run in told]
    columns: markdown.Columns = {
        "hard top-k, %": lambda run: markdown.plus_minus(
            None if (other := hard[run.name]) is None else other.end("test_error")
        ),
        "relaxed, %": markdown.value("test_error"),
        "minus hard": markdown.over(hard, "test_error"),
        "density in training, %": markdown.value("train_density", scale=100),
    }
    return markdown.rows(first, [run for _, run in told], columns)


# Figures -------------------------------------------------------------------------------------------------------------

_TICKS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 90)
_MARKERS = "osD^v"


def figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """Figure 5 of each set of layers, and the error of methods at their best by density; by name."""
    drawn: dict[str, Figure] = {}
    for (dataset, kept, _, pruned), section in sections(runs, "test").items():
        # The names say nothing of task and density where these are the paper's.
        where = "" if (dataset, kept) == ("mnist", 0.1) else f"-{dataset}-{kept:g}"
        if shown := [run for run in section if not is_tuned(run)]:
            drawn[f"figure5{where}-layers{''.join(map(str, pruned)) or 'all'}"] = figure5(shown)
    at_best = cells(runs)
    for name in dict.fromkeys(key[0] for key in at_best):
        if of_network := [section for key, section in at_best.items() if key[:2] == (name, 0)]:
            suffix = "in-brief" if name == "mnist" else name
            drawn[f"error-against-density-{suffix}"] = error_against_density(of_network, runs)
    return drawn


def figure5(section: Sequence[Run]) -> Figure:
    """Test error, and below it the weights that are not 0, against time and epochs; bands are 95 % intervals."""
    figure = Figure(figsize=(12, max(5.6, 3 + 0.36 * len(section))), layout="constrained")
    panels = figure.subplots(2, 2, sharex="col", sharey="row", height_ratios=(2, 1))
    shade = 0.15 if len(section) <= 7 else 0.07  # bands of many runs lie on top of each other
    ends = []
    for run in section:
        errors = [interval(row["test_error"]) for row in run.rows]
        shares = [interval([share and 100 * share for share in row["train_density"]]) for row in run.rows]
        seconds = [row["seconds"] / len(run.summary["seeds"]) for row in run.rows]
        for (above, below), x in zip(panels.T, (seconds, [row["epoch"] for row in run.rows]), strict=True):
            curve(above, x, errors, _look(run.fields), shade=shade, linewidth=1.8)
            curve(below, x, shares, _look(run.fields), shade=0, linewidth=1.8)
        ends.append(errors[-1])
    (time, epochs), (time_below, epochs_below) = panels
    time.set(ylabel="test error, %")
    time_below.set(xlabel="training time, s per seed (seeds train together)", ylabel="weights\nnot 0, %")
    epochs_below.set(xlabel="epochs")
    lowest, least = (min(np.nanmin(line.get_ydata()) for line in axes.get_lines()) for axes in (epochs, epochs_below))
    _log_axis(time, max(0.5, 0.85 * lowest), 100, _TICKS)
    _log_axis(time_below, 0.8 * least, 125, (1, 2, 5, 10, 20, 50, 100))
    of = ", ".join(map(str, layers(section[0])))
    of = f"layers {of}" if of else "all matrices but embeddings"
    figure.suptitle(f"{task(section[0])}: {100 * section[0].config['density']:g} % of the weights of {of} kept")
    curves = zip(epochs.get_lines(), PRESENTATION.labels(section), ends, strict=True)
    worst_first = sorted(curves, key=lambda one: -_least(one[2]))
    figure.legend(
        [line for line, _, _ in worst_first],
        [f"{label}: {_final(end)}" for _, label, end in worst_first],
        loc="outside right center",
        fontsize=9,
        labelspacing=0.7,
        title="test error after the last epoch",
        title_fontsize=9,
        alignment="left",
    )
    return figure


def _final(end: Numbers) -> str:
    if end["mean"] is None:
        return "diverged"
    return f"{end['mean']:.1f} ± {end['interval95']:.1f}" if end["interval95"] else f"{end['mean']:.1f}"


def _log_axis(axes: Axes, low: float, high: float, ticks: Sequence[int]) -> None:
    axes.set(ylim=(low, high), yscale="log")  # in this order: a scale finds no limits for lines that are all as high
    _ticks(axes.yaxis, ticks)


def _ticks(axis: Axis, values: Sequence[float]) -> None:
    axis.set_major_locator(FixedLocator(values))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:g}")


def error_against_density(of_network: Sequence[Sequence[Run]], runs: Sequence[Run]) -> Figure:
    """The error of the main methods against the share of the whole network's weights that is kept; dense as a band.

    Points are moved aside a little, so that intervals do not cover each other. The annealed relaxed top-k is shown with
    the exponent that validation chose on MNIST, p = 3/2, else with 4/3.
    """
    pruned = [run for section in of_network for run in section]
    p = 1.5 if any(run.config["p"] == 1.5 for run in pruned if run.config["method"] == "relaxed") else 4 / 3
    annealed = {"method": "relaxed", "lam.schedule": "geometric", "p": p}
    main = [
        run
        for run in pruned
        if run.config["method"] in ("hard", "st3", "gradual", "movement") or annealed.items() <= run.fields.items()
    ]
    figure = Figure(figsize=(7.0, 4.6), layout="constrained")
    axes = figure.subplots()
    shown: dict[str, Any] = {}
    for run in dense_at_best(pruned, runs):
        error = interval(run.final("test_error"))
        half = error["interval95"] or 0.0
        axes.axhspan(error["mean"] - half, error["mean"] + half, color=GREY, alpha=0.2, linewidth=0)
        shown["dense"] = axes.axhline(error["mean"], color=GREY, linewidth=1.5)
    for i, (name, members) in enumerate(grouped(main, kind).items()):
        x = [100 * run.config["density"] * 1.02 ** (i - 2) for run in members]
        errors, look = [interval(run.final("hardened_error")) for run in members], _look(members[0].fields)
        shown[name] = bars(axes, x, errors, look, marker=_MARKERS[i % 5], markersize=5, linewidth=1.5)
    axes.set_xscale("log")
    _ticks(axes.xaxis, sorted({100 * run.config["density"] for run in pruned}))
    low, high = axes.get_ylim()
    if sum(low <= tick <= high for tick in _TICKS) > 1:  # else errors are all about as large, and no tick among them
        axes.set_yscale("log")
        _ticks(axes.yaxis, _TICKS)
    axes.set(xlabel="weights kept, %", ylabel="test error, %")
    axes.legend(list(shown.values()), list(shown), loc="upper right", fontsize=9)
    return figure


# Findings ------------------------------------------------------------------------------------------------------------

_load = functools.lru_cache(maxsize=2)(lambda directory: PRESENTATION.load(directory)[0])


class _Compared(NamedTuple):
    """The runs on MNIST in the paper's setting with all three layers pruned, and what findings compare."""

    hard: dict[str, Run | None]  # the hard top-k that each is compared with
    papers: list[Run]  # at the paper's lam
    best: Run | None  # at another lam, the one whose setting erred least on validation
    transport: Run | None  # hard top-k with the gradient of optimal transport


@functools.lru_cache(maxsize=2)
def _compared(results: Path) -> _Compared:
    runs, key = _load(results / "mnist_pruning"), ("mnist", 0.1, -3, (1, 2, 3))
    section = sections(runs, "test").get(key, [])
    sweep = sections(runs, "validation").get(key, [])
    hard = PRESENTATION.references(section)
    # Chosen by the error on the test images, the best of several would be judged too well by its own interval.
    won = making.chosen(results / "mnist_pruning")
    tried = [run for run in sweep if run.config["method"] == "relaxed" and run.name in won and not is_tuned(run)]
    ends = {_setting(run): _least(run.end("hardened_error")) for run in tried}
    errors = {setting: error for setting, error in ends.items() if error < float("inf")}
    relaxed = [run for run in section if run.config["method"] == "relaxed" and hard[run.name]]
    others = [run for run in relaxed if _setting(run) in errors and not is_papers(run.fields)]
    return _Compared(
        hard=hard,
        papers=[run for run in relaxed if is_papers(run.fields)],
        best=min(others, key=lambda run: errors[_setting(run)], default=None),
        transport=next((run for run in section if run.config["method"] == "ot_straight_through"), None),
    )


def _setting(run: Run) -> str:
    """The fields that are chosen for a method."""
    of_method = (*KINDS.of_kinds, *PRESENTATION.setting)
    return repr([one for one in PRESENTATION.read(run.fields).items() if is_of(one[0], of_method)])


def _least(value: Numbers | None) -> float:
    """The mean, to order by; where there is none, it comes last."""
    return float("inf") if value is None or value["mean"] is None else value["mean"]


def _finding(judge: Callable[[_Compared, Sequence[Run]], Verdict | None]) -> Callable[[Path], Finding | None]:
    """A finding on the runs at the paper's lam, and on the one whose lam was chosen; `judge` gives the verdict."""

    @functools.wraps(judge)
    def find(results: Path) -> Finding | None:
        its = _compared(results)
        stated = judge(its, its.papers) if its.papers else None
        return stated and Finding(stated, judge(its, [its.best]) if its.best else None, finding.PAPERS_TASK)

    return find


@_finding
def accuracy(its: _Compared, runs: Sequence[Run]) -> Verdict:
    """Whether the error at the end is lower than hard top-k's, and the difference that is nearest to the claim."""
    values = [minus(run, its.hard[run.name], "test_error") for run in runs]
    return Verdict(finding.answer([-sign(one) for one in values]), f"error {in_words(min(values, key=_least))}")


@_finding
def speed(its: _Compared, runs: Sequence[Run]) -> Verdict:
    """Whether the largest weights alone have hard top-k's error before the end in every seed, and when in the first."""
    epochs = [reached(run, its.hard[run.name]) or interval([None]) for run in runs]
    ends = [run.summary["epochs"] for run in runs]
    sooner = [None not in one["per_seed"] and max(one["per_seed"]) < end for one, end in zip(epochs, ends, strict=True)]
    first, end = min(zip(epochs, ends, strict=True), key=lambda pair: _least(pair[0]))
    told = _epochs(first)
    told = told if told.startswith("in") else f"after {told} of {end} epochs"
    return Verdict(finding.answer([1 if one else -1 for one in sooner]), told)


@_finding
def density(its: _Compared, runs: Sequence[Run]) -> Verdict:
    """Whether 10.0 % of the weights are not 0 at the end, to the first decimal."""
    shares = [run.end("train_density") for run in runs]
    when = "" if runs is its.papers else ", at the end"
    is_a_tenth = [abs(_least(share) - 0.1) < 5e-4 for share in shares]
    return Verdict(finding.in_every_case(is_a_tenth), f"{markdown.plus_minus(shares[0], scale=100)} %{when}")


@_finding
def optimal_transport(its: _Compared, runs: Sequence[Run]) -> Verdict | None:
    """Whether all differences of its gradient from relaxed operators have intervals that hold 0, and the nearest."""
    if its.transport is None:
        return None
    values = [minus(its.transport, run, "test_error") for run in runs]
    is_level = [one is not None and one["interval95"] is not None and not sign(one) for one in values]
    nearest = min(values, key=lambda one: abs(_least(one)))
    return Verdict(finding.in_every_case(is_level), f"error {in_words(nearest)}")


# Pages and the command -----------------------------------------------------------------------------------------------


def blocks(results: Path) -> dict[str, list[str]]:
    """The lines of the blocks of the results pages that are made of the runs, by name; none where there are no runs."""
    runs, vit = _load(results / "mnist_pruning"), _load(results / "cifar100_pruning")
    if not (runs and vit):
        return {}
    key, section = next(iter(sections(runs, "test").items()))
    columns = ("test error, %", "minus hard")
    main = [
        {"method": ", ".join(filter(None, (row["method"], row["setting"])))} | {name: row[name] for name in columns}
        for run, row in zip(section, paper_rows(section, sections(runs, "validation")[key]), strict=True)
        if _is_headline(run.fields)
    ]
    return {
        "pruning in the paper's setting": markdown.table(main, text=1)[:-1],
        "pruning as on the slides": markdown.table(_by_seed(sections(runs, "test").get(_SLIDES, [])), text=1)[:-1],
        "methods at their best": _by_density(runs),
        "methods on the transformer": _by_density(vit),
    }


def _by_seed(section: Sequence[Run]) -> list[markdown.Cells]:
    """The rows of runs at the paper's lam and of hard top-k, whose means depend on a few lost seeds.

    *Lower in a pair* is the share of pairs of a seed of each in which the relaxed one has the lower error: how often an
    experiment that trains each once is for it.
    """
    hard = PRESENTATION.references(section)
    shown = [run for run in section if run.config["method"] == "hard" or is_papers(run.fields)]

    def split(run: Run) -> str:
        over = minus(run, hard[run.name], "test_error")
        return "-" if over is None else "{} of {}, p = {:.2g}".format(*sign_test(over))

    def pairs(run: Run) -> str:
        other = hard[run.name]
        return "-" if other is None else f"{100 * np.less.outer(_errors(run), _errors(other)).mean():.0f} %"

    columns: markdown.Columns = {
        "test error, %": markdown.value("test_error"),
        "median": lambda run: f"{np.nanmedian(_errors(run)):.2f}",
        "minus hard": markdown.over(hard, "test_error"),
        "higher in": split,
        "lower in a pair": pairs,
    }
    return markdown.rows([{"method": kind(run)} for run in shown], shown, columns)


def _errors(run: Run) -> np.ndarray:
    """By seed; NaN where it diverged."""
    return np.array(run.final("test_error"), float)


def _by_density(runs: Sequence[Run]) -> list[str]:
    """The errors of methods at their best, by the share of the whole network's weights that is kept."""
    found = [
        (kind(run), f"{100 * run.config['density']:g} %", markdown.plus_minus(_error(run)))
        for (_, budget, _), section in cells(runs).items()
        for run in section
        if budget == 0
    ]
    return markdown.table(markdown.pivot("method", found), text=1)[:-1]


make = functools.partial(making.make, PRESENTATION, tables, figures)  # takes the directory of the runs

if __name__ == "__main__":
    console.run(lambda arguments: making.on_directory("experiments.mnist_pruning.report", making.DOC, make, arguments))
