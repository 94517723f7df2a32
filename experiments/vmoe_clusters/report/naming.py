"""What a run of the task is called in tables and figures, and when it got there."""

import dataclasses
from collections.abc import Collection, Iterable
from pathlib import Path

from experiments.core.report import results
from experiments.core.report.markdown import number
from experiments.core.report.results import NUMBER, Problem, Run
from experiments.vmoe.report import naming as of_routers
from experiments.vmoe_clusters import kinds

REACHED = 0.9  # of what the true centres recover
_KNOWN: dict[str, Collection[str]] = {"router.name": kinds.NAMES}


def load(directory: Path) -> tuple[list[Run], list[Problem]]:
    """The runs of this task below `directory`, by name; those of others as problems, as what is broken."""
    return results.load_of(directory, "vmoe_clusters", "the task of clusters", IDENTITY.odd)


def router(run: Run) -> str:
    """For example `relaxed expert choice, p = 2, of the logits, 50 slots`."""
    return kinds.label(run.config["router"])


def setting(run: Run) -> str:
    """The hyper-parameters that are chosen, for example `learning rate 0.03, lam = 1`."""
    rate = f"learning rate {number(run.config['optimizer']['learning_rate'])}"
    return ", ".join(filter(None, [rate, kinds.setting(run.config["router"])]))


def noise(run: Run) -> float:
    """That of the tokens."""
    return run.config["task"]["noise"]


def circumstances(run: Run) -> tuple[int, float]:
    """Steps and noise, which routers that are compared have in common."""
    return run.config["steps"], noise(run)


def of_split(runs: Iterable[Run], split: str) -> list[Run]:
    """The runs of a split, by steps and noise, then in the order of the routers."""
    chosen = [run for run in runs if run.config["split"] == split]
    return sorted(chosen, key=lambda run: (*circumstances(run), kinds.NAMES.index(run.config["router"]["name"])))


def reference(run: Run, name: str, runs: Iterable[Run]) -> Run | None:
    """The first in all circumstances of `run` with the router of a name; None if that is `run`, or there is none."""
    found = next((one for one in IDENTITY.comparable(run, runs) if one.config["router"]["name"] == name), None)
    return None if found is run else found


def steps_to_reach(run: Run, share: float = REACHED) -> list[int | None]:
    """By seed, the first step with a row that recovers at least this share of what the true centres do; None: never."""
    prefix = "test" if run.config["split"] == "test" else "valid"
    reached: list[int | None] = [None] * len(run.summary["seeds"])
    for row in reversed(run.rows):
        pairs = zip(row[f"{prefix}_recovery"], row[f"{prefix}_reachable"], strict=True)
        for seed, (found, reachable) in enumerate(pairs):
            if found is not None and found >= share * reachable:
                reached[seed] = row["step"]
    return reached


IDENTITY = dataclasses.replace(
    of_routers.IDENTITY,
    kinds=kinds.KINDS,
    known=_KNOWN,
    baseline=lambda run, others: reference(run, "hard", others),
    types={
        **dict.fromkeys(("split", "router.name"), str),
        **dict.fromkeys(("task.noise", "optimizer.learning_rate"), NUMBER),
        "steps": int,
    },
    parts=lambda run: [router(run), setting(run)],
    earlier={},
)
