"""Findings on V-MoE. Without S/32 on JFT-300M they are of a stand-in."""

from collections.abc import Sequence
from pathlib import Path

from experiments.core.report.benchmarks import first_on_accelerator, name_of, on_accelerator
from experiments.core.report.finding import (
    NOT_POSSIBLE,
    PAPERS_TASK,
    STAND_IN,
    Finding,
    Measured,
    Numbers,
    Verdict,
    answer,
    higher_or_lower,
    in_every_case,
    read,
    sign,
)

PAPER_OVERHEAD = 15 / 10  # hours with the relaxed router and with the hard one
ON_TOKENS = "vmoe_tokens"  # the directory of results on features of a frozen network
PAPERS = "Dykstra, 10 iterations"
_PAPERS_ROUTER = "Dykstra with 10 iterations"  # in names of runs


def precision(results: Path) -> Finding | None:
    """The relaxed routers against the hard one: on ImageNet's features, where these results are there."""
    table = read(results / ON_TOKENS / "table.json") or read(results / "vmoe" / "table.json")
    rows = [row for row in (table or {}).get("final", []) if row["name"] == "relaxed"]
    if not rows:
        return None
    signs = [sign(row["minus_hard"]) for row in rows]
    shown = next((row for row in rows if row["router"].endswith(_PAPERS_ROUTER)), rows[0])
    verdict = Verdict(answer(signs), higher_or_lower("precision", shown["minus_hard"]))
    seen = [row["detectable"] for row in rows if row["detectable"] is not None]
    plain = f"On {table['stand_in']['examples']}, a" if table["stand_in"] else "A"
    plain += f" relaxed router is more precise than the hard one in {signs.count(1)} of {len(rows)} comparisons, and "
    plain += f"less in {signs.count(-1)}"
    if seen:
        plain += (
            f"; a true difference of {min(seen):.2f} to {max(seen):.2f} points is found in 80 % of such experiments"
        )
    return Finding(
        f"{plain}.",
        NOT_POSSIBLE if table["stand_in"] else verdict,
        verdict if table["stand_in"] else None,
        STAND_IN if table["stand_in"] else PAPERS_TASK,
        "points of precision-at-1, minus those of the hard router",
        [Measured.of(_label(row, rows), row["minus_hard"]) for row in rows],
    )


def _label(row: Numbers, rows: Sequence[Numbers]) -> str:
    """As `p = 2, of the logits, learning rate 3e-3, lam = 1`; with its steps, if those of others are not as many."""
    parts = [row["router"].removeprefix("relaxed expert choice, "), row["setting"]]
    parts += [f"{row['steps']} steps"] if len({other["steps"] for other in rows}) > 1 else []
    return ", ".join(parts)


def step_times(results: Path) -> Finding | None:
    """The time of a step over that with the hard router: accelerators first.

    On CPUs by what the layers take by themselves, as whole steps differ by more than that from one to the next.
    """
    record = first_on_accelerator(results, "router")
    if record is None:
        return None
    by, how = ("ratio_of_steps", "") if on_accelerator(record) else ("one_plus_extra_over_step", ", by routers alone")
    ratios = {name: record["routers"][name][by] for name in ("relaxed, logits", PAPERS)}
    most = f"{max(ratios.values()):.3f} times as long"
    verdict = Verdict(in_every_case([max(ratios.values()) >= PAPER_OVERHEAD]), most)
    return Finding(
        f"A step of S/32 with a relaxed router takes up to {most} as with the hard one{how}; the paper's takes "
        f"{PAPER_OVERHEAD:g} times as long.",
        verdict if on_accelerator(record) else NOT_POSSIBLE,
        None if on_accelerator(record) else verdict,
        name_of(record),
        "times a step with the hard router",
        [Measured(name, ratio) for name, ratio in ratios.items()],
    )
