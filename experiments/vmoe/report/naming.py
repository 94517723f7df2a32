"""What a run of the V-MoE experiment is called in tables and figures."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments.core.report import results
from experiments.core.report.markdown import number, p_name
from experiments.core.report.pooled import pooled
from experiments.core.report.results import Problem, Run

# Of Zhou et al.; hard expert choice of the logits is there for the relaxed one of the logits to be held against.
USUAL_SCORE = "gates"
_ORDER = ("hard", "relaxed", "token_choice", "soft")


def load(directory: Path) -> tuple[list[Run], list[Problem]]:
    """The runs of this experiment below `directory`, by name; those of others as problems, as what is broken."""
    return results.load_of(directory, "vmoe", "the V-MoE experiment")


def router(run: Run) -> str:
    """For example `relaxed expert choice, p = 2, of the logits`."""
    fields = run.config["router"]
    if fields["name"] == "hard":
        return f"hard expert choice, of the {fields['score']}"
    if fields["name"] == "token_choice":
        return f"token choice, {fields['selected']} experts"
    if fields["name"] == "soft":
        return "Soft MoE"
    solver = f", Dykstra with {fields['dykstra']} iterations" if fields["dykstra"] else ""
    buffer = f", {fields['capacity']} slots" if fields["capacity"] else ""
    return f"relaxed expert choice, p = {p_name(fields['p'])}, of the {fields['score']}{solver}{buffer}"


def setting(run: Run) -> str:
    """The hyper-parameters that are chosen, for example `learning rate 3e-3, lam = 0.1`."""
    rate = f"learning rate {number(run.config['optimizer']['learning_rate'])}"
    fields = run.config["router"]
    if fields["name"] != "relaxed":
        return rate
    lam = fields["lam"]
    strength = f"lam = {number(lam['start'])}"
    if lam["schedule"] == "geometric":
        strength = f"lam from {number(lam['start'])} to {number(lam['end'])}"
    return f"{rate}, {strength}"


def final(runs: Iterable[Run]) -> list[Run]:
    """The runs on test, those that differ in their seeds alone as one, in the order of `by_router`."""
    return by_router(pooled(run for run in runs if run.config["split"] == "test"))


def reference(run: Run, runs: Iterable[Run]) -> Run | None:
    """The run with the hard router that `run` is held against: for a relaxed one that of its score, if there is one.

    Token choice, Soft MoE and the hard router of the logits are held against the hard one of the gates, or what there
    is in its place; that one itself against none.
    """
    hard = {other.config["router"]["score"]: other for other in runs if other.config["router"]["name"] == "hard"}
    fields = run.config["router"]
    usual = hard.get(USUAL_SCORE) or next(iter(hard.values()), None)
    found = hard.get(fields["score"], usual) if fields["name"] == "relaxed" else usual
    return None if found is run else found


def by_router(runs: Iterable[Run]) -> list[Run]:
    """Hard first, the relaxed ones, token choice; then by learning rate and lam."""

    def key(run: Run) -> tuple[Any, ...]:
        fields = run.config["router"]
        first = USUAL_SCORE if fields["name"] == "hard" else "logits"
        kind = (_ORDER.index(fields["name"]), fields["score"] != first, fields["dykstra"], fields["capacity"])
        return (*kind, run.config["optimizer"]["learning_rate"], fields["lam"]["start"], run.name)

    return sorted(runs, key=key)


def is_stand_in(run: Run) -> bool:
    """Whether it is of another size than the paper's."""
    return run.config["model"]["variant"] not in ("S/32", "B/16")
