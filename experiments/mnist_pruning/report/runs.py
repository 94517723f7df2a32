"""Runs of the pruning experiment as its report shows them: their names, looks, order and groups."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from experiments.core.kinds import Fields
from experiments.core.record.summary import interval
from experiments.core.report import markdown
from experiments.core.report.finding import Numbers
from experiments.core.report.presentation import Presentation
from experiments.core.report.results import Run, grouped
from experiments.core.report.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, Look
from experiments.mnist_pruning.methods import KINDS, METHODS

BUDGETS = {"network": "the whole network", "matrix": "each matrix", "row": "each unit"}

# The name of each method, and the look of its curve; the paper's methods have solid lines.
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
_AS_IN_PAPER = {"method": "relaxed", "lam.schedule": "constant", "lam.start": 1e-4, "lam_times_size": False}
_AS_IN_PAPER |= {"debias": False, "form": "operator", "hard_after": 1.0, "density_schedule.name": "constant"}


def is_as_in_paper(fields: Fields) -> bool:
    """Returns whether operator and lam are those of the paper's Section 6, from the first step to the last."""
    return _AS_IN_PAPER.items() <= fields.items()


def method_of(fields: Fields) -> str:
    """Names the method of a config; the relaxed top-k has a name for each course of lam."""
    name = LOOKS[fields["method"]][0]
    if fields["method"] == "mask_straight_through":
        return f"hard, {fields['mask.name']} gradient"
    if fields["method"] != "relaxed":
        return name
    if is_as_in_paper(fields):
        return f"{name} at the paper's lam"
    courses = {"geometric": f"annealed {name}", "support": f"{name} with falling support"}
    return courses.get(fields["lam.schedule"], name)


def look_of(fields: Fields) -> Look:
    """The colour and dashes of a run's curve."""
    if fields["method"] != "relaxed":
        return LOOKS[fields["method"]][1]
    if fields["lam.schedule"] == "constant":
        return (RED if fields["p"] == 2 else GREEN), "-" if is_as_in_paper(fields) else ":"
    return _ANNEALED.get(fields["p"], BLUE), "--"


def method_and_p(run: Run) -> str:
    """Names the method of a run, and p where it has one: without the settings that are chosen for it."""
    p = f", p = {markdown.p_name(run.config['p'])}" if KINDS.is_read("p", run.fields) else ""
    return method_of(run.fields) + p


def is_tuned(run: Run) -> bool:
    """Returns whether the run has a learning rate chosen for its method; the suite names such runs `tuned`."""
    return "-tuned-" in run.name


def is_annealed(run: Run) -> bool:
    """Returns whether the run is of the relaxed operator with a lam that falls."""
    return (run.config["method"], run.fields["lam.schedule"]) == ("relaxed", "geometric")


def order(run: Run) -> tuple[Any, ...]:
    """The place of a run: by density, method, settings of the relaxed operator, and learning rate; tuned ones last."""
    fields = run.fields
    relaxed: tuple[Any, ...] = ()
    if KINDS.is_read("p", fields):
        start = fields["lam.start"] if KINDS.is_read("lam.start", fields) else 0.0
        relaxed = (fields["lam.schedule"], not is_as_in_paper(fields), -fields["p"], start)
    method = list(METHODS).index(fields["method"])
    return (is_tuned(run), -fields["density"], method, *relaxed, fields["optimizer.learning_rate"], run.name)


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
# Compares runs with the dense network, whatever share of the weights they keep.
AGAINST_DENSE = dataclasses.replace(PRESENTATION, setting=(*PRESENTATION.setting, "prune_layers", "budget", "density"))
# Names runs of one method by their settings alone.
BY_SETTING = dataclasses.replace(PRESENTATION, method=lambda fields: "", always=())

load = functools.lru_cache(maxsize=2)(lambda directory: PRESENTATION.load(directory)[0])


def part_of(runs: Sequence[Run], part: str, split: str = "test") -> list[Run]:
    """The runs of a part of the suite, `best` or `why`; with an empty name, those in the paper's setting."""
    parts = {"best", "why"}
    return [run for run in runs if run.config["split"] == split and "".join(parts & {*run.name.split("/")}) == part]


def task(run: Run) -> str:
    """The data set, with the network where that is not the paper's: `mnist`, `mnist-300-100` or `cifar100-resnet20`."""
    dataset, network = run.config["dataset"], run.config["network"]
    if network == "resnet":
        return f"{dataset}-{network}{run.config['model']['depth']}"
    if network != "mlp":
        return f"{dataset}-{network}"
    hidden = tuple(run.config["hidden"])
    return dataset if hidden == (32, 32) else "-".join([dataset, *map(str, hidden)])


def layers(run: Run) -> tuple[int, ...]:
    """The pruned layers by number; empty where all matrices but embeddings are pruned."""
    return tuple(run.config.get("prune_layers") or ())


def sections(runs: Sequence[Run], split: str) -> dict[Any, list[Run]]:
    """Groups the runs in the paper's setting by task, density and layers, most layers first as in the paper's text."""

    def key(run: Run) -> tuple[Any, ...]:
        return task(run), run.config["density"], -len(layers(run)), layers(run)

    return grouped(sorted(part_of(runs, "", split), key=key), key)


def sections_at_best(runs: Sequence[Run]) -> dict[Any, list[Run]]:
    """Groups the pruned runs of methods at their best by task, budget and density, the highest density first."""
    pruned = [run for run in part_of(runs, "best") if run.config["method"] != "dense"]

    def key(run: Run) -> tuple[Any, ...]:
        return task(run), list(BUDGETS).index(run.config["budget"]), -run.config["density"]

    return grouped(sorted(pruned, key=key), key)


def dense_at_best(section: Sequence[Run], runs: Sequence[Run]) -> list[Run]:
    """The dense network at its best, for the task of a section; empty if there is none."""
    at_best = part_of(runs, "best")
    return [run for run in at_best if task(run) == task(section[0]) and run.config["method"] == "dense"][:1]


def best_annealed(section: Sequence[Run], runs: Sequence[Run]) -> Run | None:
    """Returns the annealed relaxed top-k of a section with the p that erred least on validation, not on test.

    Where no p was tried, it is the first one; None without such a run.
    """
    annealed = [run for run in section if is_annealed(run)]
    ps = {run.config["p"] for run in annealed}
    where = (task(section[0]), section[0].config["budget"]) if section else ()
    tried = [run for run in part_of(runs, "best", "validation") if is_annealed(run) and run.config["p"] in ps]
    rivals = [run for run in tried if (task(run), run.config["budget"]) == where]
    won = min(rivals, key=lambda run: mean_or_inf(run.end("hardened_error")), default=None)
    return next((run for run in annealed if won is None or run.config["p"] == won.config["p"]), None)


def epochs_to_hard(run: Run, hard: Run | None) -> Numbers | None:
    """Returns by seed the first epoch in which the largest weights alone have at most hard top-k's last error."""
    if hard is None:
        return None
    ends = dict(zip(hard.summary["seeds"], hard.final("test_error"), strict=True))

    def first(i: int, end: float | None) -> float | None:
        errors = ((row["epoch"], row["hardened_error"][i]) for row in run.rows)
        return next((epoch for epoch, error in errors if None not in (error, end) and error <= end), None)

    return interval([first(i, ends.get(seed)) for i, seed in enumerate(run.summary["seeds"])])


def epochs_in_words(epochs: Numbers | None) -> str:
    """Writes such epochs as `1.20 ± 0.30`, or says how many seeds get there, if not all do."""
    if epochs is None:
        return "-"
    seeds = epochs["per_seed"]
    there = len(seeds) - seeds.count(None)
    return markdown.plus_minus(epochs) if there == len(seeds) else f"in {there} of {len(seeds)} seeds"


def mean_or_inf(value: Numbers | None) -> float:
    """The mean of an interval, to order by; infinity where there is none."""
    return float("inf") if value is None or value["mean"] is None else value["mean"]
