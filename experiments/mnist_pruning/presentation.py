"""Names and looks of the runs of the pruning experiment, and the groups that they belong to."""

from collections.abc import Callable
from typing import Any

import pandas as pd

from experiments.core.kinds import Fields
from experiments.core.report.markdown import p_name
from experiments.core.report.presentation import Presentation
from experiments.core.report.results import NUMBER, Run, are_whole
from experiments.core.report.runs import RUN, dotted
from experiments.core.report.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, Look
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
    "gradual": ("gradual magnitude pruning", (GREEN, "-.")),
    "movement": ("movement pruning", (RED, "-.")),
    "rigl": ("RigL", (SKY, "-.")),
    "topkast": ("Top-KAST", (ORANGE, "-.")),
    "str": ("soft threshold reparameterisation", (PURPLE, "-.")),
}
# Colours by p, where lam falls by a schedule of its own, or by the support.
_ANNEALED = {2.0: ORANGE, 1.5: SKY, 4 / 3: PURPLE, 1.25: BLACK}
_BY_SUPPORT = {2.0: RED, 1.5: BLUE, 4 / 3: GREEN}


def is_papers(fields: Fields) -> bool:
    """Whether operator and lam are those of the paper's Section 6, from the first step to the last."""
    papers = {"method": "relaxed", "lam.schedule": "constant", "lam.start": 1e-4, "lam_times_size": False}
    papers |= {"debias": False, "form": "operator", "hard_after": 1.0, "density_schedule.name": "constant"}
    return all(fields.get(name) == value for name, value in papers.items())


def method_of(fields: Fields) -> str:
    """The name of a method, by the fields of a config; the relaxed top-k has one for each course of lam.

    Raises:
      KeyError, TypeError, ValueError: a field that tables sort by is missing, or of another kind.
    """
    _order(fields)
    name = LOOKS[fields["method"]][0]
    if fields["method"] == "mask_straight_through":
        return f"hard, {fields['mask.name']} gradient"
    if fields["method"] != "relaxed":
        return name
    if is_papers(fields):
        return f"{name} at the paper's lam"
    return {"geometric": f"annealed {name}", "support": f"{name} with falling support"}.get(
        fields["lam.schedule"], name
    )


def _look(fields: Fields) -> Look:
    if fields["method"] != "relaxed":
        return LOOKS[fields["method"]][1]
    if fields["lam.schedule"] == "constant":
        return (RED if fields["p"] == 2 else GREEN), "-" if is_papers(fields) else ":"
    colours = _ANNEALED if fields["lam.schedule"] == "geometric" else _BY_SUPPORT
    return colours.get(fields["p"], BLUE), "--"


def _order(fields: Fields) -> tuple[Any, ...]:
    """The place of a run in tables: by learning rate, method, and the settings of the relaxed operator."""
    rate, method = float(fields["optimizer.learning_rate"]), list(METHODS).index(fields["method"])
    relaxed: tuple[Any, ...] = ()
    if KINDS.is_read("p", fields):
        start = float(fields["lam.start"]) if KINDS.is_read("lam.start", fields) else 0.0
        relaxed = (fields["lam.schedule"], not is_papers(fields), -float(fields["p"]), start)
    return (-float(fields["density"]), method, *relaxed, rate)


def _tells_the_story(fields: Fields) -> bool:
    """Whether a run is one of the paper's Figure 5, or that with lam annealed."""
    setting = {"dataset": "mnist", "split": "test", "density": 0.1, "epochs": 30, "budget": "matrix"}
    setting |= {"optimizer.learning_rate": 1e-2, "optimizer.schedule": "constant"}
    annealed = fields.get("method") == "relaxed" and fields.get("lam.schedule") == "geometric"
    return (
        all(fields.get(name) == value for name, value in setting.items())
        and tuple(fields.get("prune_layers") or ()) == (1, 2, 3)
        and (fields["method"] in ("dense", "hard", "ot_straight_through") or is_papers(fields) or annealed)
    )


PRESENTATION = Presentation(
    experiment="mnist_pruning",
    title="the pruning experiment",
    kinds=KINDS,
    method=method_of,
    look=_look,
    baseline="hard",
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
        "optimizer.schedule": "schedule",
    },
    headline=_tells_the_story,
    types={
        **dict.fromkeys(("dataset", "network", "split", "budget", "optimizer.schedule"), str),
        **dict.fromkeys(("density", "optimizer.learning_rate"), NUMBER),
        "prune_layers": lambda value: value is None or are_whole(value),
    },
)


def in_order(found: pd.DataFrame) -> pd.DataFrame:
    """The runs in the order of tables; those at a learning rate chosen for their method come last."""
    orders = {name: (is_tuned(name), *_order(dotted(run.config)), name) for name, run in found[RUN].items()}
    return found.loc[sorted(found.index, key=orders.__getitem__)]


def is_tuned(name: str) -> bool:
    """Whether a run is one of those at a learning rate chosen for their method, by the name the suite gives them."""
    return "-tuned-" in name


def part_of(found: pd.DataFrame, part: str, split: str = "test") -> pd.DataFrame:
    """The runs of a part of the suite: `best`, `pictures`, `why`; empty for the paper's setting."""
    parts = found[RUN].map(lambda run: "".join({"best", "pictures", "why"}.intersection(run.name.split("/"))))
    return found[(parts == part) & (found["split"] == split)]


def groups(found: pd.DataFrame, key: Callable[[Run], Any]) -> dict[Any, pd.DataFrame]:
    """The runs by a key, in its order."""
    groups: dict[Any, list[str]] = {}
    for name, run in found[RUN].items():
        groups.setdefault(key(run), []).append(str(name))
    return {key: found.loc[groups[key]] for key in sorted(groups)}


def task(run: Run) -> str:
    """The data set, with the network where that is not the paper's: `mnist`, or `cifar100-vit`."""
    dataset, network = run.config["dataset"], run.config["network"]
    return dataset if network == "mlp" else f"{dataset}-{network}"


def layers(run: Run) -> tuple[int, ...]:
    """The pruned layers by number; none where all matrices but embeddings are pruned."""
    return tuple(run.config.get("prune_layers") or ())


def sections(found: pd.DataFrame, split: str) -> dict[Any, pd.DataFrame]:
    """The runs in the paper's setting by task, density and layers; the paper's text prunes all, so most come first."""
    return groups(
        part_of(found, "", split), lambda run: (task(run), run.config["density"], -len(layers(run)), layers(run))
    )


def cells(found: pd.DataFrame) -> dict[Any, pd.DataFrame]:
    """The runs of every method at its best that prune, by task, budget and density; highest density first."""
    at_best = part_of(found, "best")
    place = list(BUDGETS).index
    pruned = at_best[at_best["method"] != "dense"]
    return groups(pruned, lambda run: (task(run), place(run.config["budget"]), -run.config["density"]))


def kinds(found: pd.DataFrame) -> pd.Series:
    """The method of each run, and p where it has one: without the rest, which is chosen for it."""
    fields = found[RUN].map(lambda run: dotted(run.config))
    return fields.map(lambda one: method_of(one) + (f", p = {p_name(one['p'])}" if KINDS.is_read("p", one) else ""))


def dense_at_best(section: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """The dense network at its best, of the task of a section; in a frame without a row if there is none."""
    at_best = part_of(found, "best")
    of_task = at_best[RUN].map(task) == task(section[RUN].iloc[0])
    return at_best[of_task & (at_best["method"] == "dense")].iloc[:1]
