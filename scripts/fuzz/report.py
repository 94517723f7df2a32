"""What a run found: for people, and for a file."""

import itertools
import math
import statistics
from collections.abc import Iterator
from typing import Any

from scripts.fuzz.entries import BEYOND
from scripts.fuzz.run import Failure, Outcome


def _by_operator(outcomes: list[Outcome]) -> dict[str, list[Outcome]]:
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.setting.operator, []).append(outcome)
    return groups


def summary(outcomes: list[Outcome]) -> dict[str, Any]:
    """Counts and worst errors of some settings."""
    names = ("value", "d/dx", "d/dk", "d/dlam")

    def worst(errors: list[dict[str, float]]) -> dict[str, float | None]:
        found = {name: max((error.get(name, 0.0) for error in errors), default=0.0) for name in names}
        return {name: value if math.isfinite(value) else None for name, value in found.items()}  # JSON has no inf

    failures = [failure for outcome in outcomes for failure in outcome.failures]
    passes = [count for outcome in outcomes for count in outcome.passes]
    return {
        "tried": sum(outcome.tried for outcome in outcomes),
        "beyond": sum(outcome.beyond for outcome in outcomes),
        "refused": sum(outcome.refused for outcome in outcomes),
        "wrong": len(failures),
        "not_finite": sum(
            any(fault.verdict in ("NaN", "infinite") for fault in failure.faults) for failure in failures
        ),
        "judged": {name: sum(outcome.judged.get(name, 0) for outcome in outcomes) for name in names},
        "worst_units": worst([outcome.units for outcome in outcomes]),
        "worst_share": worst([outcome.ratio for outcome in outcomes]),
        "passes": {"median": statistics.median(passes), "worst": max(passes)} if passes else None,
    }


def document(outcomes: list[Outcome], seed: int) -> dict[str, Any]:
    """Everything, as JSON."""
    return {
        "seed": seed,
        "all": summary(outcomes),
        "operators": {name: summary(group) for name, group in _by_operator(outcomes).items()},
        "failures": [
            {"problem": failure.line, "kind": failure.kind, "what": str(failure)}
            for outcome in outcomes
            for failure in outcome.failures
        ],
    }


def lines(outcomes: list[Outcome], most: int) -> Iterator[str]:
    """A table by operator, and the failures, of which ``most`` of each sort are shown."""
    yield "worst errors are those of right answers: in units of rounding, and as a share of what is let off"
    yield f"{'operator':24} {'tried':>7} {'beyond':>6} {'wrong':>6} {'NaN':>5} |"
    groups = _by_operator(outcomes)
    for name, those in [*sorted(groups.items()), ("all", outcomes)]:
        yield _row(name, summary(those))
    failures = [failure for outcome in outcomes for failure in outcome.failures]
    slowest = max((outcome.slowest for outcome in outcomes if outcome.slowest), default=None)
    if slowest:
        yield f"most passes, {slowest[0]}: python -m scripts.fuzz --problem='{slowest[1]}'"

    def sort(failure: Failure) -> tuple[str, bool, str]:
        verdicts = "; ".join(f"{fault.quantity} {fault.verdict}" for fault in failure.faults)
        return failure.line.split(" ", 1)[0], failure.kind == BEYOND, verdicts or failure.message

    for (operator, beyond, verdicts), group in itertools.groupby(sorted(failures, key=sort), key=sort):
        found = list(group)
        where = ", beyond the documented range" if beyond else ""
        yield f"\n{operator}: {verdicts}{where}: {len(found)}"
        for failure in found[:most]:
            yield f"  ({failure.kind}) {failure}"
            yield f"  python -m scripts.fuzz --problem='{failure.line}'"
        if len(found) > most:
            yield f"  and {len(found) - most} more, which --out keeps and --show=N shows"


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _row(name: str, of: dict[str, Any]) -> str:
    errors = ", ".join(
        f"{quantity} {_short(of['worst_units'][quantity])} ({_short(of['worst_share'][quantity])}; {judged} compared)"
        for quantity, judged in of["judged"].items()
        if judged
    )
    passes = f"; passes {of['passes']['median']:g} (worst {of['passes']['worst']})" if of["passes"] else ""
    refused = f"; {of['refused']} refused" if of["refused"] else ""
    return (
        f"{name:24} {of['tried']:7} {of['beyond']:6} {of['wrong']:6} {of['not_finite']:5} | {errors}{passes}{refused}"
    )
