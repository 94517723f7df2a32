"""The tables of the pruning experiment, in `table.md` and on the pages of results."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.core.report import markdown
from experiments.core.report.paired import Metric, minus, sign_test
from experiments.core.report.results import Run, grouped
from experiments.mnist_pruning.report.runs import (
    AGAINST_DENSE,
    BUDGETS,
    BY_SETTING,
    PRESENTATION,
    dense_at_best,
    epochs_in_words,
    epochs_to_hard,
    is_annealed,
    is_as_in_paper,
    is_tuned,
    load,
    method_and_p,
    method_of,
    part_of,
    sections,
    sections_at_best,
    task,
)

_PAPERS = 0.1  # the share of each matrix that the paper keeps
_SLIDES = ("mnist", 0.1, -2, (2, 3))  # the section of what the paper's slides show
_ON_PAPERS_SETTING = """\
Mean ± half width of the 95 % t-interval over seeds; *minus hard* is paired by seed, at the same learning
rate where there is such a run. *Hardened* keeps the largest weights only, as many as the density allows.
*Hardened epochs to it*: until the largest weights alone have the error that hard top-k ends with, by seed,
or how many seeds get there.
"""
_ON_BEST = """\
A cosine learning rate, at the best on validation of the settings below. The error is that of the largest weights
alone, as many as the density allows; of the dense network, of all. *Lost*: seeds that err in more than half of the
images, and twice as often as the median. *Minus* is paired by seed.
"""


def tables(runs: Sequence[Run], chosen: frozenset[str]) -> list[str]:
    """Returns the lines of all tables; `chosen` names the runs that won a choice on validation."""
    lines: list[str] = []
    tests, sweeps = sections(runs, "test"), sections(runs, "validation")
    for key, section in tests.items():
        lines += markdown.section(f"Test, {_title(key, section)}", paper_rows(section, sweeps.get(key, section)))
    lines += _ON_PAPERS_SETTING.split("\n") if tests else []
    for key, section in sweeps.items():
        lines += markdown.section(f"Validation, {_title(key, section)}", _tried(section, chosen))
    at_best = sections_at_best(runs)
    for (dataset, _, _), section in at_best.items():
        title = f"Test, {dataset}: every method at its best, {_asked(section[0])} kept"
        lines += markdown.section(title, best_rows(section, runs))
    lines += _ON_BEST.split("\n") if at_best else []
    for section in grouped(part_of(runs, "best", "validation"), _budget).values():
        title = f"Validation, every method at its best, {_asked(section[0])} kept"
        lines += markdown.section(title, _tried(section, chosen))
    if why := part_of(runs, "why"):
        title = f"Test, why the paper's lam fails: lam = 1e-4 under what is open, {_lengths(why)} epochs"
        lines += markdown.section(title, why_rows(runs))
    return lines


def _budget(run: Run) -> tuple[Any, ...]:
    return task(run), run.config["budget"] != "network", -run.config["density"]


def _asked(run: Run) -> str:
    return f"{100 * run.config['density']:g} % of {BUDGETS[run.config['budget']]}"


def _title(key: Sequence[Any], section: Sequence[Run]) -> str:
    dataset, density, _, pruned = key
    part = f"layers {' and '.join(map(str, pruned))}" if pruned else "every matrix but embeddings"
    return f"{dataset}: {100 * density:g} % of {part} kept, {_lengths(section)} epochs"


def _lengths(runs: Sequence[Run]) -> str:
    return " or ".join(map(str, sorted({run.summary["epochs"] for run in runs})))


def _named(section: Sequence[Run], sweep: Sequence[Run]) -> list[markdown.Cells]:
    """Names each run: its method, and the fields in which it differs from others of the section and the sweep."""
    in_titles = ("split", "epochs", "steps", "density", "budget", "prune_layers")
    both = [*section, *(run for run in sweep if run not in section)]
    settings = PRESENTATION.settings(both, given=in_titles)
    return [
        {"method": method_of(run.fields), "setting": setting} for run, setting in zip(section, settings, strict=False)
    ]


def paper_rows(section: Sequence[Run], sweep: Sequence[Run]) -> list[markdown.Cells]:
    """Returns the rows of runs on test in the paper's setting, named by what differs there and in the sweep."""
    hard = PRESENTATION.references(section)
    columns: markdown.Columns = {
        "test error, %": markdown.value("test_error"),
        "minus hard": markdown.minus_reference(hard, "test_error"),
        "density in training, %": markdown.value("train_density", scale=100),
        "hardened error, %": markdown.value("hardened_error"),
        "hardened epochs to it": lambda run: epochs_in_words(epochs_to_hard(run, hard[run.name])),
    }
    return markdown.rows(_named(section, sweep), section, columns)


def _tried(section: Sequence[Run], chosen: frozenset[str]) -> list[markdown.Cells]:
    """Returns the rows of candidates; the hardened error chooses, for the dense network its own."""
    columns = {"validation error, %": markdown.value("valid_error"), "hardened, %": markdown.value("hardened_error")}
    return markdown.rows(_named(section, section), section, columns, chosen)


def best_rows(section: Sequence[Run], runs: Sequence[Run]) -> list[markdown.Cells]:
    """Returns the rows of methods at their best: the dense network, then a section of `sections_at_best`."""
    shown = [*dense_at_best(section, runs), *section]
    to_all = "identity_straight_through"
    columns: markdown.Columns = {
        "test error, %": markdown.value(_error),
        "median": lambda run: f"{np.nanmedian(_errors(run, _error)):.2f}",
        "lost": lambda run: str(_lost(run)),
        "minus gradient to all": markdown.minus_reference(PRESENTATION.references(section, to_all), _error),
        "minus hard": markdown.minus_reference(PRESENTATION.references(section, "hard"), _error),
        "minus gradual": markdown.minus_reference(PRESENTATION.references(section, "gradual"), _error),
        "minus movement": markdown.minus_reference(PRESENTATION.references(section, "movement"), _error),
        "minus dense": markdown.minus_reference(AGAINST_DENSE.references(shown, "dense"), _error),
    }
    return markdown.rows(_named(shown, part_of(runs, "best", "validation")), shown, columns)


def _error(run: Run) -> list[float | None]:
    """Returns by seed the error of the largest weights alone, for the dense network that of all."""
    return run.final("test_error" if run.config["method"] == "dense" else "hardened_error")


def _lost(run: Run) -> int:
    """Returns the number of seeds that diverged, or err in more than half of the images and twice as often as usual."""
    errors = _errors(run, _error)
    return int(np.sum(~(errors <= max(50.0, 2 * np.nanmedian(errors)))))


def why_rows(runs: Sequence[Run]) -> list[markdown.Cells]:
    """Returns the rows of relaxed runs at the paper's lam, one for each thing left open, beside hard top-k."""
    relaxed = [run for run in part_of(runs, "why") if run.config["method"] == "relaxed"]
    hard = PRESENTATION.references([run for run in runs if run.config["split"] == "test" and not is_tuned(run)])
    named = sorted(zip(BY_SETTING.settings(relaxed, given=("p",)), relaxed, strict=True), key=lambda pair: pair[0])
    first = [{"what is open": text or "as elsewhere", "p": markdown.p_name(run.config["p"])} for text, run in named]
    columns: markdown.Columns = {
        "hard top-k, %": lambda run: markdown.plus_minus(
            other.end("test_error") if (other := hard[run.name]) else None
        ),
        "relaxed, %": markdown.value("test_error"),
        "minus hard": markdown.minus_reference(hard, "test_error"),
        "density in training, %": markdown.value("train_density", scale=100),
    }
    return markdown.rows(first, [run for _, run in named], columns)


def blocks(results: Path) -> dict[str, list[str]]:
    """Returns the lines of the tables on the pages of results, by the names of their blocks; none without runs."""
    runs, vit = load(results / "mnist_pruning"), load(results / "cifar100_pruning")
    if not (runs and vit):
        return {}
    key, section = next(iter(sections(runs, "test").items()))
    columns = ("test error, %", "minus hard")
    main = [
        {"method": ", ".join(filter(None, (row["method"], row["setting"])))} | {name: row[name] for name in columns}
        for run, row in zip(section, paper_rows(section, sections(runs, "validation")[key]), strict=True)
        if _is_headline(run)
    ]
    return {
        "pruning in the paper's setting": markdown.table(main, text=1)[:-1],
        "pruning as on the slides": markdown.table(_by_seed(sections(runs, "test").get(_SLIDES, [])), text=1)[:-1],
        "methods at their best": _by_density(runs),
        "methods on the transformer": _by_density(vit),
    }


def _is_headline(run: Run) -> bool:
    """Returns whether a run is one of the paper's Figure 5, or that with lam annealed."""
    is_papers = run.config["method"] in ("dense", "hard", "ot_straight_through") or is_as_in_paper(run.fields)
    return (is_papers or is_annealed(run)) and not is_tuned(run)


def _by_seed(section: Sequence[Run]) -> list[markdown.Cells]:
    """Returns the rows of hard top-k and of runs at the paper's lam, whose means depend on a few lost seeds.

    *Lower in a pair* is the share of all pairs of seeds, one of each run, in which the relaxed one has the lower error:
    how often an experiment that trains each once favours it.
    """
    hard = PRESENTATION.references(section)
    shown = [run for run in section if run.config["method"] == "hard" or is_as_in_paper(run.fields)]

    def split(run: Run) -> str:
        over = minus(run, hard[run.name], "test_error")
        return "-" if over is None else "{} of {}, p = {:.2g}".format(*sign_test(over))

    def pairs(run: Run) -> str:
        other = hard[run.name]
        return (
            "-"
            if other is None
            else f"{100 * np.less.outer(_errors(run, 'test_error'), _errors(other, 'test_error')).mean():.0f} %"
        )

    columns: markdown.Columns = {
        "test error, %": markdown.value("test_error"),
        "median": lambda run: f"{np.nanmedian(_errors(run, 'test_error')):.2f}",
        "minus hard": markdown.minus_reference(hard, "test_error"),
        "higher in": split,
        "lower in a pair": pairs,
    }
    return markdown.rows([{"method": method_and_p(run)} for run in shown], shown, columns)


def _errors(run: Run, metric: Metric) -> np.ndarray:
    """The errors by seed; NaN where a seed diverged."""
    return np.array(run.final(metric) if isinstance(metric, str) else metric(run), float)


def _by_density(runs: Sequence[Run]) -> list[str]:
    """Returns the lines of the errors at their best: a column for the budget of the paper, then those of the network.

    Where seeds are lost, a mean says nothing: the cell has the median of all seeds.
    """

    def error(run: Run) -> str:
        errors, lost = _errors(run, _error), _lost(run)
        told = f"median {np.nanmedian(errors):.2f}, {lost} of {len(errors)} lost"
        return told if lost else markdown.value(_error)(run)

    found = [
        (method_and_p(run), f"{-100 * negative:g} %{'' if budget == 0 else ' of each matrix'}", error(run))
        for (_, budget, negative), section in sorted(sections_at_best(runs).items(), key=lambda one: one[0][1] == 0)
        for run in section
        if budget == 0 or run.config["density"] == _PAPERS
    ]
    return markdown.table(markdown.pivot("method", found), text=1)[:-1]
