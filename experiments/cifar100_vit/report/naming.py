"""What a run of the fine-tuning experiment is called in tables and figures."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments.cifar100_vit.losses import LOSSES
from experiments.core.report import results
from experiments.core.report.markdown import number
from experiments.core.report.pooled import pooled
from experiments.core.report.results import Problem, Run
from experiments.core.report.style import Look

PAPER = "paper/"  # begins the names of runs at the paper's learning rates, where others have chosen theirs


def load(directory: Path) -> tuple[list[Run], list[Problem]]:
    """The runs of this experiment below `directory`, by name; those of others as problems, as what is broken."""
    return results.load_of(directory, "cifar100_vit", "the fine-tuning experiment", {"loss.name": LOSSES})


def loss(run: Run) -> str:
    """For example `top-3, p = 4/3, smooth target`."""
    return LOSSES[run.config["loss"]["name"]].label(run.config["loss"])


def look(run: Run) -> Look:
    """Of its curves."""
    return LOSSES[run.config["loss"]["name"]].look(run.config["loss"])


def setting(run: Run) -> str:
    """The hyper-parameters that are chosen, for example `learning rate 0.1, lam = 1`."""
    rate, fields = f"learning rate {number(run.config['optimizer']['learning_rate'])}", run.config["loss"]
    return f"{rate}, lam = {number(fields['lam'])}" if LOSSES[fields["name"]].relaxed else rate


def is_pretraining(run: Run) -> bool:
    """Whether the run makes the weights that others start from."""
    return bool(run.config.get("export_params"))


def final(runs: Iterable[Run]) -> list[Run]:
    """The runs on test, those that differ in their seeds alone as one, in the order of `by_loss`."""
    return by_loss(pooled(run for run in runs if run.config["split"] == "test" and not is_pretraining(run)))


def is_at_paper_rate(run: Run) -> bool:
    """Whether its learning rate was not chosen, but the paper's."""
    return run.name.startswith(PAPER)


def has_features(run: Run) -> bool:
    """Whether a head was trained on features of a frozen network."""
    return "features" in run.config


def by_loss(runs: Iterable[Run]) -> list[Run]:
    """In the order of LOSSES; then by learning rate and lam."""

    def key(run: Run) -> tuple[Any, ...]:
        fields = run.config["loss"]
        kind = (list(LOSSES).index(fields["name"]), -fields["k"], fields["target"] != "one_hot", -fields["p"])
        return (*kind, run.config["optimizer"]["learning_rate"], fields["lam"], run.name)

    return sorted(runs, key=key)


def is_stand_in(run: Run) -> bool:
    """Whether its weights are not ImageNet's."""
    return run.config.get("model", {}).get("variant") != "B/16"
