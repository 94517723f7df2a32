"""Why the paper's lam fails: the table of what it leaves open, and the step of a pair at the threshold."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.core.record.summary import interval
from experiments.core.report import tables
from experiments.core.report.finding import sign
from experiments.core.report.markdown import grid, mean, p_name, plus_minus
from experiments.core.report.paired import difference
from experiments.core.report.results import Run
from experiments.core.report.style import BLUE, GREEN, GREY, RED
from experiments.mnist_pruning import relaxed
from experiments.mnist_pruning.conventions import OF_OPERATOR, OPEN, in_name
from experiments.mnist_pruning.report import naming

Numbers = dict[str, Any]

_HEADER = (
    "what is open",
    "p",
    "hard top-k, %",
    "relaxed, %",
    "minus hard",
    "medians",
    "better in",
    "density in training, %",
    "seeds",
    "diverged",
)
_RATE = 1e-2  # the paper's


def pair_step(lam: float, rate: float, momentum: float = 0.0, scale: float = 1.0) -> float:
    """How far a step moves each of two weights that tie at the threshold, apart, where their gradients differ by 1.

    With `p = 2` the derivative of the one that is kept in their difference is `1 / (2 lam)`, and of the other minus
    that. So of gradients `g_i`, `g_j` in the pruned weights, each has `(g_i - g_j) / (2 lam)` of them, times the rate;
    in the long run by `1 / (1 - momentum)` more. Without the operator it would be `rate / 2`.

    Args:
      lam: of the operator.
      rate: of learning.
      momentum: of SGD.
      scale: of the gradient.
    """
    return scale * rate / (2 * lam) / (1 - momentum)


def step_of_a_pair() -> Figure:
    """Against lam, at the paper's learning rate."""
    figure = Figure(figsize=(6.6, 3.8), layout="constrained")
    axes = figure.subplots()
    lams = np.logspace(-5, 1, 61)
    lines: tuple[tuple[str, dict[str, float], str], ...] = (
        ("momentum 0.9", {"momentum": 0.9}, RED),
        ("SGD", {}, BLUE),
        ("SGD, gradient / 10", {"scale": 0.1}, GREEN),
    )
    for label, options, colour in lines:
        axes.plot(lams, [pair_step(lam, _RATE, **options) for lam in lams], color=colour, label=label)
    axes.axhline(_RATE / 2, color=GREY, linestyle="--", label="without pruning")
    axes.axvline(relaxed.PAPER_LAM, color=GREY, linestyle=":", label="the paper's $\\lambda$")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("$\\lambda$")
    axes.set_ylabel("step of a weight at the threshold\nover the difference of two gradients")
    axes.legend(fontsize=9)
    return figure


def measure(runs: Sequence[Run]) -> Numbers:
    """All numbers of the table; empty where there is no such run."""
    found = {run.name: run for run in runs if naming.part(run) == "why"}
    rows = []
    for variant in OPEN | OF_OPERATOR:
        for run in (found[name] for p in relaxed.P if (name := _name(variant, p)) in found):
            hard = found.get(_name(variant, "hard")) if variant in OPEN else _hard(run, runs)
            rows.append(_row(variant, run, hard))
    return {"why": rows} if rows else {}


def _hard(run: Run, runs: Sequence[Run]) -> Run | None:
    """The hard top-k that trained as long with the same optimizer, for a variant of the operator alone."""
    alike = (one for one in naming.IDENTITY.comparable(run, runs) if one.config["method"] == "hard")
    return next((one for one in alike if one.config["optimizer"] == run.config["optimizer"]), None)


def _name(variant: str, which: str) -> str:
    return f"why/{in_name(variant)}-{which}"


def _row(variant: str, run: Run, hard: Run | None) -> Numbers:
    return {
        "run": run.name,
        "variant": variant,
        "p": run.config["p"],
        "epochs": run.summary["epochs"],
        "hard": interval(hard.final("test_error")) if hard else None,
        "relaxed": interval(run.final("test_error")),
        "minus_hard": difference(run, hard, "test_error") if hard else None,
        "train_density": interval(run.final("train_density")),
        "seeds": run.summary["seeds"],
        "diverged": run.summary["diverged"],
    }


def markdown(numbers: Numbers) -> list[str]:
    """The lines of the table; none where there are no numbers."""
    rows = numbers.get("why", [])
    if not rows:
        return []
    epochs = " or ".join(map(str, sorted({row["epochs"] for row in rows})))
    return [
        f"### Why the paper's lam fails: lam = 1e-4 under what is open, three layers, {epochs} epochs, on test",
        "",
        *grid(_HEADER, map(_cells, rows)),
        "",
        "*Medians* over seeds: of hard top-k, of the relaxed one. *Better in*: seeds where the relaxed one errs less.",
        "",
    ]


def told(numbers: Numbers) -> list[str]:
    """A list in Markdown: in how many tries the relaxed one is better, and where by its median."""
    rows = [row for row in numbers["why"] if row["minus_hard"] and row["minus_hard"]["mean"] is not None]
    clearly, second = sum(sign(row["minus_hard"]) < 0 for row in rows), sum(row["p"] == 2 for row in rows)
    found = [f"- Clearly below hard top-k in {clearly} of {len(rows)} tries that end, {second} of them with p = 2."]
    for row in rows:
        hard, ours = map(_median, (row["hard"], row["relaxed"]))
        if ours < hard:
            share = f"{mean(row['train_density'], scale=100)} % of the weights are not 0"
            found.append(
                f"- {row['variant'][0].upper()}{row['variant'][1:]}, p = {p_name(row['p'])}, {row['epochs']} epochs: "
                f"below it by the median, {ours:.2f} against {hard:.2f}, in {_better(row)} seeds; mean "
                f"{plus_minus(row['minus_hard'], signed=True)}; {share}."
            )
    return found


def _median(value: Numbers) -> float:
    """Over the seeds that have a value."""
    return float(np.median([one for one in value["per_seed"] if one is not None]))


def _better(row: Numbers) -> str:
    differences = [value for value in row["minus_hard"]["per_seed"] if value is not None]
    return f"{sum(value < 0 for value in differences)} of {len(differences)}"


def _cells(row: Numbers) -> list[str]:
    lost = row["minus_hard"] is None or row["minus_hard"]["mean"] is None
    return [
        row["variant"],
        p_name(row["p"]),
        plus_minus(row["hard"]),
        plus_minus(row["relaxed"]),
        plus_minus(row["minus_hard"], signed=True),
        *(["-"] * 2 if lost else [f"{_median(row['hard']):.2f}, {_median(row['relaxed']):.2f}", _better(row)]),
        mean(row["train_density"], scale=100),
        *tables.outcome(row),
    ]
