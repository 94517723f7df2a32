"""Findings on V-MoE. Where a small network stands in for S/32 on JFT-300M, no verdict goes beyond that."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.core.report.benchmarks import first_on_accelerator, name_of, on_accelerator
from experiments.core.report.finding import Finding, Measured, Numbers, all_above, power, read
from experiments.core.report.markdown import plus_minus

PAPER_OVERHEAD = 15 / 10  # hours with the relaxed router and with the hard one
ON_TOKENS = "vmoe_tokens"  # the directory of results on features of a frozen network
PAPERS = "Dykstra, 10 iterations"


def precision(results: Path) -> Finding | None:
    """The relaxed routers against the hard one: on ImageNet's features, where these results are there."""
    table = read(results / ON_TOKENS / "table.json") or read(results / "vmoe" / "table.json")
    rows = [row for row in (table or {}).get("final", []) if row["name"] == "relaxed"]
    if not rows:
        return None
    differences = {_label(row, rows): row["minus_hard"] for row in rows}
    what = "relaxed expert choice, precision-at-1 minus the hard router's, points"
    stand_in = f"a small network and {table['stand_in']['examples']}" if table["stand_in"] else ""
    return all_above(
        f"{what}: {_told(differences)}",
        differences,
        f"{what}: {_told({_label(row, rows, brief=True): row['minus_hard'] for row in rows})}",
        ahead="The relaxed router is ahead of the hard one",
        unit="points of precision-at-1, minus those of the hard router",
        stand_in=stand_in,
        seen=power(rows),
    )


def _label(row: Numbers, rows: Sequence[Numbers], *, brief: bool = False) -> str:
    """As `p = 2, of the logits, learning rate 3e-3, lam = 1`; with its steps, if those of others are not as many."""
    parts = [row["router"].removeprefix("relaxed expert choice, ")]
    parts += [] if brief else [row["setting"]]
    parts += [f"{row['steps']} steps"] if len({other["steps"] for other in rows}) > 1 else []
    return ", ".join(parts)


def _told(differences: Mapping[str, Numbers | None]) -> str:
    return "; ".join(f"{name}: {plus_minus(value, signed=True)}" for name, value in differences.items())


def step_times(results: Path) -> Finding | None:
    """What a step costs beside one with the hard router, by the benchmark of routers: accelerators first.

    On CPUs by what the layers take by themselves, as whole steps differ by more than that from one to the next.
    """
    record = first_on_accelerator(results, "router")
    if record is None:
        return None
    by, how = ("ratio_of_steps", "") if on_accelerator(record) else ("one_plus_extra_over_step", ", by routers alone")
    ratios = {name: record["routers"][name][by] for name in ("relaxed, logits", PAPERS)}
    ours = f"step over that of the hard router{how}: "
    ours += "; ".join(f"{name}: {ratio:.3f}" for name, ratio in ratios.items())
    within = ratios["relaxed, logits"] < PAPER_OVERHEAD and ratios[PAPERS] < PAPER_OVERHEAD
    why = f"S/32 shapes on {name_of(record)}; {'both below' if within else 'not both below'} the paper's 1.5"
    return Finding(
        ours,
        "substitute" if not on_accelerator(record) else "not" if within else "reproduced",
        why,
        plain=f"A step with the relaxed router takes {max(ratios.values()):.3f} times as long at most, not 1.5 times."
        if within
        else f"A step with the relaxed router takes up to {max(ratios.values()):.3f} times as long.",
        unit="times a step with the hard router",
        measured=[Measured(name, ratio) for name, ratio in ratios.items()],
    )
