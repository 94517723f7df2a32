"""Findings on the task of clusters, where the best assignment is known."""

from pathlib import Path

from experiments.core.report.finding import Finding, Measured, Numbers, Verdict, answer, read, sign

# Routers with a gradient through the mask, and what the finding calls them.
WITH_GRADIENT = {"relaxed": "relaxed", "annealed": "annealed to the hard", "straight_through": "straight-through"}


def gradient(results: Path) -> Finding | None:
    """Routers with a gradient through the mask against the hard one, by the loss at every noise."""
    table = read(results / "vmoe_clusters" / "table.json")
    rows = [row for row in (table or {}).get("final", []) if row["name"] in WITH_GRADIENT and row["minus_hard"]]
    if not rows:
        return None
    signs = [-sign(row["minus_hard"]) for row in rows]
    count = f"{signs.count(1)} of {len(signs)}"
    return Finding(
        "On a task with a known best assignment, routers with a gradient through the mask explain more than the hard "
        f"one in {count} comparisons, and less in {signs.count(-1)}.",
        None,
        Verdict(answer(signs), f"relaxed better in {count}, worse in {signs.count(-1)}"),
        "a task of ours",
        "loss minus the hard router's, % of the variance",
        [Measured.of(f"{WITH_GRADIENT[row['name']]}, {_where(row)}", row["minus_hard"]) for row in rows],
    )


def _where(row: Numbers) -> str:
    return f"noise {row['noise']:g} ({row['steps']} steps)"
