"""The runs of the pruning experiment, and what they are called in tables and figures."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from experiments.core.report import results
from experiments.core.report.identity import Identity
from experiments.core.report.markdown import number
from experiments.core.report.results import NUMBER, Problem, Run, are_whole
from experiments.core.report.style import Look
from experiments.mnist_pruning import relaxed
from experiments.mnist_pruning.masks import MASKS
from experiments.mnist_pruning.methods import KINDS, METHODS
from experiments.mnist_pruning.networks import NETWORKS

PAPER_LEARNING_RATE = 1e-2
_KNOWN: dict[str, Collection[str]] = {"method": METHODS, "mask.name": MASKS, "network": NETWORKS}


def load(directory: Path) -> tuple[list[Run], list[Problem]]:
    """The runs of this experiment below `directory`, by name; those of others as problems, as what is broken."""
    return results.load_of(directory, "mnist_pruning", "the pruning experiment", IDENTITY.odd)


def task(run: Run) -> str:
    """The data set, with the network where that is not the paper's: `mnist`, or `cifar100-vit`."""
    dataset, network = run.config["dataset"], run.config.get("network") or "mlp"  # older runs know of no other
    return dataset if network == "mlp" else f"{dataset}-{network}"


def method(run: Run) -> str:
    """For example `relaxed top-k`, or `hard, LapSum gradient`."""
    label = METHODS[run.config["method"]].label
    return label if isinstance(label, str) else label(run.config)


def legend(run: Run) -> str:
    """What it is called in figures."""
    name = METHODS[run.config["method"]].legend or method(run)
    name = name if isinstance(name, str) else name(run.config)
    return f"{name}, lr {run.config['optimizer']['learning_rate']:g}" if is_tuned(run) else name


def look(run: Run) -> Look:
    """Of its curve."""
    look = METHODS[run.config["method"]].look
    return look if isinstance(look, tuple) else look(run.config)


def setting(run: Run) -> str:
    """The hyper-parameters of the method, for example `p = 4/3, lam 3 to 1e-3, rescaled`."""
    return ", ".join(_settings(run))


def _settings(run: Run) -> list[str]:
    parts = [*METHODS[run.config["method"]].setting(run.config)]
    optimizer = run.config["optimizer"]
    schedule = optimizer.get("schedule") or "constant"  # runs made before there was a choice have none
    if optimizer["learning_rate"] != PAPER_LEARNING_RATE or schedule != "constant":
        parts.append(f"learning rate {number(optimizer['learning_rate'])}")
    if schedule != "constant":
        parts.append(schedule)
    return [*parts[:-1], f"{parts[-1]} (the paper's lam)"] if relaxed.is_papers(run.config) else parts


def is_tuned(run: Run) -> bool:
    """Whether the run is one of those at a learning rate chosen for their method, by the name the suite gives them."""
    return "-tuned-" in run.name


def part(run: Run) -> str:
    """Of the suite: every method at its `best`, `pictures` of some, or `why`; else empty, the paper's setting."""
    return next((part for part in ("best", "pictures", "why") if part in run.name.split("/")), "")


def best_of(runs: Iterable[Run], split: str) -> list[Run]:
    """The runs of every method at its best that are evaluated on `split`, in the order of METHODS."""
    return sorted((run for run in runs if part(run) == "best" and run.config["split"] == split), key=_order)


def kind(run: Run) -> str:
    """What it is called where runs differ by method alone: without what is chosen for it."""
    name = method(run)
    return f"{name}, {relaxed.kind(run.config)}" if run.config["method"] == "relaxed" else name


def layers(run: Run) -> tuple[int, ...]:
    """The pruned layers, by number; none where they have no numbers, and all matrices are pruned but embeddings."""
    return tuple(run.config.get("prune_layers") or ())


def of_layers(layers: Sequence[int]) -> str:
    """What figures call them."""
    return f"layers {', '.join(map(str, layers))}" if layers else "all matrices but embeddings"


def group(runs: Iterable[Run], split: str) -> dict[tuple[Any, ...], list[Run]]:
    """The runs evaluated on `split` by `(task, density, pruned layers)`, in the order of METHODS.

    Most layers come first: the paper's text prunes all of them.
    """
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        if run.config["split"] == split and not part(run):
            groups.setdefault((task(run), run.config["density"], layers(run)), []).append(run)
    for members in groups.values():
        members.sort(key=_order)
    return dict(sorted(groups.items(), key=lambda item: (item[0][0], item[0][1], -len(item[0][2]), item[0][2])))


def reference(run: Run, runs: Iterable[Run], method: str, but: Collection[str] = ()) -> Run | None:
    """The last of a method in the circumstances of `run`, `but` for these fields; None if that is `run` or not there.

    Runs at a rate chosen for their method are held to such runs.
    """
    alike = IDENTITY.comparable(run, runs, but)
    of_method = [one for one in alike if one.config["method"] == method and is_tuned(one) == is_tuned(run)]
    return None if not of_method or of_method[-1] is run else of_method[-1]


def _order(run: Run) -> tuple[Any, ...]:
    config = run.config
    lam = (config["lam"]["schedule"], not relaxed.is_papers(config), -config["p"], config["lam"]["start"])
    mask = config.get("mask") or {}  # runs made before there were others than ot have none
    other = (config["ot"]["epsilon"], mask.get("name") or "", mask.get("strength") or 0.0)
    return (is_tuned(run), list(METHODS).index(config["method"]), *lam, *other, run.name)


IDENTITY = Identity(
    kinds=KINDS,
    known=_KNOWN,
    baseline=lambda run, others: reference(run, others, "hard"),
    types={
        **dict.fromkeys(("method", "dataset", "split", "lam.schedule"), str),
        **dict.fromkeys(("density", "p", "lam.start", "ot.epsilon", "optimizer.learning_rate"), NUMBER),
        **dict.fromkeys(("network", "budget", "mask.name", "optimizer.schedule"), str | None),
        "mask.strength": NUMBER | None,
        "prune_layers": lambda value: value is None or are_whole(value),
    },
    parts=lambda run: [method(run), *_settings(run)],
    told=(
        *("method", "mask", "ot", "p", "lam", "debias", "hard_after", "density_schedule.name", "density_schedule.end"),
        *("optimizer.learning_rate", "optimizer.schedule", "rigl.drop", "topkast.backward_density", "str.weight_decay"),
    ),
    earlier={
        **relaxed.EARLIER,
        "budget": "matrix",
        "density_schedule.name": "constant",
        "initialisation": "lecun_normal",
        "inputs": "standardised",
        "network": "mlp",
        "optimizer.schedule": "constant",
    },
)
