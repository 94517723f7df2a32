"""Findings on the task of clusters, where the best assignment is known."""

from pathlib import Path

from experiments.core.report.finding import Finding, Measured, Numbers, Verdict, above, below, power, read
from experiments.core.report.markdown import plus_minus

# Routers with a gradient through the mask, and what the brief finding calls them.
WITH_GRADIENT = {"relaxed": "relaxed", "annealed": "annealed to the hard", "straight_through": "straight-through"}


def gradient(results: Path) -> Finding | None:
    """Routers with a gradient through the mask against the hard one, by the loss at every noise."""
    table = read(results / "vmoe_clusters" / "table.json")
    rows = [row for row in (table or {}).get("final", []) if row["name"] in WITH_GRADIENT and row["minus_hard"]]
    if not rows:
        return None
    better = [below(row["minus_hard"]) for row in rows]
    count, worse = f"{sum(better)} of {len(better)}", sum(above(row["minus_hard"]) for row in rows)
    verdict: Verdict = "reproduced" if all(better) else "partly" if any(better) else "not"
    what = "loss minus the hard router's, % of the variance"
    places = dict.fromkeys(map(_where, rows))
    shown = {(row["name"], _where(row)): _shown(row) for row in rows}
    by_name = [
        f"{called}: {', '.join(shown.get((name, where), '-') for where in places)}"
        for name, called in WITH_GRADIENT.items()
        if any(row["name"] == name for row in rows)
    ]
    return Finding(
        f"{what}: " + "; ".join(f"{row['router']}, {_where(row)}: {_shown(row)}" for row in rows),
        verdict,
        f"{count} intervals lie below 0, {worse} above{power(rows)}",
        f"{what}, at {', '.join(places)}: {'; '.join(by_name)}",
        plain="On a task with a known best assignment, routers with a gradient through the mask explain more than the "
        f"hard one in {count} comparisons, and less in {worse}.",
        unit=what,
        measured=[Measured.of(f"{WITH_GRADIENT[row['name']]}, {_where(row)}", row["minus_hard"]) for row in rows],
    )


def _where(row: Numbers) -> str:
    return f"noise {row['noise']:g} ({row['steps']} steps)"


def _shown(row: Numbers) -> str:
    return plus_minus(row["minus_hard"], signed=True)
