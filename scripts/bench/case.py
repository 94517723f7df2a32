"""One case: every contestant prepared, checked, and timed beside the others."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scripts.bench.check import check
from scripts.bench.contestants import BOTH, FORWARD, MODES, TOP_K, Contestant, Inputs, draw
from scripts.bench.failure import caught
from scripts.bench.peers import BOX_SECTION
from scripts.bench.record import Attempt
from scripts.bench.sizes import Case
from scripts.bench.timing import Budget, interleave

BASELINES = (TOP_K, BOX_SECTION)

Row = dict[str, Any]


def compare(
    case: Case,
    contestants: Sequence[Contestant],
    budget: Budget,
    seed: int = 0,
    lost: Mapping[str, str] | None = None,
    attempt: Attempt = contextlib.nullcontext,
) -> dict[str, Any]:
    """Times all contestants on one case, but for those that are `lost`, which have failed before.

    Whom it prepares it does within their `attempt`.

    Returns:
      Shape of the case and a list of rows, one for each contestant and mode. The ``status`` of a row is ``timed``,
      ``skipped`` (too large for it), ``wrong`` (its output is; not timed) or ``failed`` (it raised), the last three
      with a ``reason``. Timed rows hold quartiles in milliseconds, and ``ratio_to`` a baseline: the quotient of the
      two medians in the same mode, below 1 for the faster.
    """
    inputs = draw(case, seed)
    rows: list[Row] = []
    calls: dict[tuple[str, str], Callable[[], Any]] = {}
    settle: dict[tuple[str, str], float] = {}
    failed: dict[tuple[str, str], str] = {}
    for contestant in contestants:
        with attempt(contestant.name):
            prepared, found = _prepare(contestant, inputs, lost or {})
        rows += found
        for mode, call in prepared.items():
            calls[contestant.name, mode] = call
            settle[contestant.name, mode] = contestant.settle
    times = interleave(calls, budget, settle, failed=failed)
    for row in rows:
        key = row["contestant"], row["mode"]
        if key in failed:
            row.update(status="failed", reason=failed[key])
        elif row["status"] == "timed":
            row.update(times[key]._asdict())
    for row in rows:
        if row["status"] == "timed":
            row["ratio_to"] = {name: _ratio(row, find(rows, name, row["mode"])) for name in BASELINES}
    return {"batch": case.batch, "n": case.n, "k": case.k, "results": rows}


def find(rows: Sequence[Row], contestant: str, mode: str) -> Row | None:
    """The timed row of a contestant in a mode, or None."""
    for row in rows:
        if (row["contestant"], row["mode"], row["status"]) == (contestant, mode, "timed"):
            return row
    return None


def _ratio(row: Row, baseline: Row | None) -> float | None:
    return None if baseline is None else row["median_ms"] / baseline["median_ms"]


def _prepare(
    contestant: Contestant, inputs: Inputs, lost: Mapping[str, str]
) -> tuple[dict[str, Callable[[], Any]], list[Row]]:
    def row(mode: str, status: str, reason: str | None = None) -> Row:
        return {"contestant": contestant.name, "mode": mode, "status": status, "reason": reason}

    size = inputs.case.batch * inputs.case.n
    if contestant.limit is not None and size > contestant.limit:
        return {}, [row(mode, "skipped", f"too slow: {size} entries, limit {contestant.limit}") for mode in MODES]
    failed = {name: reason for name, reason in lost.items() if name == contestant.name}
    if not failed:
        with caught(failed, contestant.name):
            calls = dict(contestant.prepare(inputs))
            verdict = check(contestant, inputs, {mode: call() for mode, call in calls.items()})
    if failed:
        return {}, [row(mode, "failed", failed[contestant.name]) for mode in MODES]
    extra = {"inexact_by_design": contestant.tolerance is None, "relative_sum_error": verdict.sum_error}
    found = []
    for mode in calls:
        error_name = {FORWARD: "max_abs_error", BOTH: "relative_gradient_error"}[mode]
        found.append({**row(mode, "timed"), **extra, error_name: verdict.errors[mode]})
    if verdict.right:
        return calls, found
    reason = f"off by more than the tolerance, {contestant.tolerance}: {verdict.errors}"
    return {}, [{**entry, "status": "wrong", "reason": reason} for entry in found]
