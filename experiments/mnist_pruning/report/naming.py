"""The runs of the pruning experiment, and what they are called in tables and figures."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments.core.report import results
from experiments.core.report.markdown import number, p_name
from experiments.core.report.results import Problem, Run

METHODS = {
    "dense": "dense",
    "hard": "hard top-k",
    "relaxed": "relaxed top-k",
    "straight_through": "hard, relaxed gradient",
    "ot_straight_through": "hard, optimal-transport gradient",
    "mask_straight_through": "hard, gradient of another mask",
    "hard_concrete": "hard-concrete L0 gates",
    "ista": "iterative soft-thresholding",
}
# Of mask_straight_through: what each mask is called, and what its strength is.
MASKS = {
    "entropic_ot": ("optimal-transport", "epsilon"),
    "perturbed": ("perturbed-mask", "sigma"),
    "sigmoid": ("sigmoid-mask", "temperature"),
    "lapsum": ("LapSum", "temperature"),
    "softsort": ("SoftSort", "temperature"),
    "neuralsort": ("NeuralSort", "temperature"),
}
PAPER_LAM = 1e-4
PAPER_LEARNING_RATE = 1e-2


def load(directory: Path) -> tuple[list[Run], list[Problem]]:
    """The runs of this experiment below `directory`, by name; those of others as problems, as what is broken."""
    return results.load_of(directory, "mnist_pruning", "the pruning experiment")


def method(run: Run) -> str:
    """For example `relaxed top-k`, or `hard, LapSum gradient`."""
    if run.config["method"] == "mask_straight_through":
        return f"hard, {MASKS[run.config['mask']['name']][0]} gradient"
    return METHODS[run.config["method"]]


def setting(run: Run) -> str:
    """The hyper-parameters of the method, for example `p = 4/3, lam 3 to 1e-3, rescaled`."""
    config = run.config
    parts = []
    if config["method"] == "ot_straight_through":
        parts.append(f"epsilon = {number(config['ot']['epsilon'])}")
    if config["method"] == "mask_straight_through":
        parts.append(mask_setting(run))
    if config["method"] in ("relaxed", "straight_through"):
        lam = config["lam"]
        start, end = number(lam["start"]), number(lam["end"])
        strength = f"lam {start} to {end}" if lam["schedule"] == "geometric" else f"lam = {start}"
        parts += [f"p = {p_name(config['p'])}", strength] + (["rescaled"] if config["debias"] else [])
    if (rate := config["optimizer"]["learning_rate"]) != PAPER_LEARNING_RATE:
        parts.append(f"learning rate {number(rate)}")
    return ", ".join(parts) + (" (the paper's lam)" if is_papers(run) else "")


def mask_setting(run: Run) -> str:
    """The strength of a `mask_straight_through`, by the name its operator has for it: `temperature = 0.1`."""
    mask = run.config["mask"]
    samples = f", {mask['num_samples']} samples" if mask["name"] == "perturbed" else ""
    return f"{MASKS[mask['name']][1]} = {number(mask['strength'])}{samples}"


def is_tuned(run: Run) -> bool:
    """Whether the run is one of those at a learning rate chosen for their method, by the name the suite gives them."""
    return "-tuned-" in run.name


def is_annealed(run: Run) -> bool:
    """Whether lam falls in the course of training."""
    return run.config["method"] == "relaxed" and run.config["lam"]["schedule"] == "geometric"


def is_papers(run: Run) -> bool:
    """Whether the operator and lam are those of the paper's Section 6."""
    config = run.config
    constant = config["lam"]["schedule"] == "constant" and config["lam"]["start"] == PAPER_LAM
    return config["method"] == "relaxed" and constant and not config["debias"]


def layers(run: Run) -> tuple[int, ...]:
    """The pruned layers."""
    return tuple(run.config["prune_layers"])


def group(runs: Iterable[Run], split: str) -> dict[tuple[Any, ...], list[Run]]:
    """The runs evaluated on `split` by `(dataset, density, pruned layers)`, in the order of METHODS.

    Most layers come first: the paper's text prunes all of them.
    """
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        if run.config["split"] == split:
            groups.setdefault((run.config["dataset"], run.config["density"], layers(run)), []).append(run)
    for members in groups.values():
        members.sort(key=_order)
    return dict(sorted(groups.items(), key=lambda item: (item[0][0], item[0][1], -len(item[0][2]), item[0][2])))


def _order(run: Run) -> tuple[Any, ...]:
    config = run.config
    lam = (config["lam"]["schedule"], not is_papers(run), -config["p"], config["lam"]["start"])
    mask = config.get("mask", {"name": "", "strength": 0.0})  # runs made before there were others than ot
    other = (config["ot"]["epsilon"], mask["name"], mask["strength"])
    return (is_tuned(run), list(METHODS).index(config["method"]), *lam, *other, run.name)
