"""The table of the V-MoE experiment: `python -m experiments.vmoe.report.table DIR`.

Reads the workdirs below DIR and writes DIR/table.md, which it also prints, and DIR/table.json.
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.core import console
from experiments.core.record.summary import interval
from experiments.core.report import tables
from experiments.core.report.markdown import grid, plus_minus
from experiments.core.report.paired import detectable, difference, difference_of
from experiments.core.report.results import Run
from experiments.vmoe.report import naming

Numbers = dict[str, Any]

# Of the evaluation, means over the layers of experts; the name in a run, and the head of the column. Tables show those
# that some of their runs have.
ROUTING = {
    "dropped_mass": "dropped mass, %",
    "support": "tokens of an expert",
    "load_variation": "their variation",
    "experts_per_token_mean": "experts of a token",
    "experts_per_token_max": "most in a group",
    "served_by_1": "tokens with an expert, %",
    "entropy": "entropy of gates, nats",
    "specialisation": "specialisation, nats",
    "stability": "stability, %",
}
_EXPLAINED = {
    "load_variation": "- variation: standard deviation over mean, over the experts of a group, of the tokens selected",
    "specialisation": "- specialisation: mutual information of expert and class, over the tokens that experts work on",
    "stability": "- stability: of the pairs of token and expert in either of two rows of training, {every} steps apart,"
    " the share in both; mean over training",
}
_FINAL_HEADER = (
    *("router", "setting", "precision-at-1, %", "minus hard", "seen", "step time over hard", "seeds", "diverged"),
)
_FINAL_EXPLAINED = (
    "Mean ± half width of the 95 % t-interval over seeds. Differences (paired by seed) and ratios of step",
    "times are to a run with the hard router: of the same score for a relaxed one, of the gates for all the",
    "others; *seen*: the difference in truth that such an experiment finds in four of five cases, by its own",
    "spread. Step times: medians of the second half of training, of runs on the same processors; `results/bench`",
    "has them side by side.",
)
_SWEEP_HEADER = (*("router", "setting", "precision-at-1, %", "dropped mass, %", "tokens of an expert", "diverged", ""),)
_PAPER = (
    "The paper: V-MoE S/32 on JFT-300M, precision-at-1 in a figure only, 10 h of training with the hard router and",
    "15 h with the relaxed one (p = 2, 10 iterations of Dykstra's algorithm): 1.5 times the time.",
)


def make(directory: Path) -> list[Path]:
    """Prints the table of the runs below `directory`, writes it there, and returns the files written."""
    return tables.make(directory, naming.load(directory), measure, markdown)


def measure(runs: Sequence[Run], chosen: frozenset[str]) -> Numbers:
    """All numbers of the table; `chosen` names the runs of the sweep that won."""
    tried = [run for run in runs if run.config["split"] == "validation"]
    final = naming.final(runs)
    return {
        "stand_in": _network(final[0]) if any(naming.is_stand_in(run) for run in final) else None,
        "final": [_final_row(run, naming.reference(run, final)) for run in final],
        "sweep": [_common(run, "valid") | {"chosen": run.name in chosen} for run in naming.by_router(tried)],
    }


def _network(run: Run) -> Numbers:
    return {"examples": naming.examples(run)} | {name: run.config[name] for name in ("model", "moe", "router")}


def _final_row(run: Run, reference: Run | None) -> Numbers:
    paired = None if reference is None else difference(run, reference, "test_precision_at_1")
    step = _step_seconds(run)
    # The hard router is its own measure; without one there is none.
    its_own = run if run.config["router"]["name"] == "hard" else None
    held = reference or its_own
    # A run that trains alone has more processors than those that trained side by side.
    of_reference = _step_seconds(held) if held is not None and held.trained_on == run.trained_on else None
    return _common(run, "test") | {
        "hard": reference and reference.name,
        "minus_hard": paired,
        "stability_minus_hard": _stability_minus(run, reference),
        "detectable": detectable(paired),
        "step_seconds": step,
        "step_over_hard": step / of_reference if step and of_reference else None,
    }


def _common(run: Run, prefix: str) -> Numbers:
    return {
        "run": run.name,
        "dataset": run.config["dataset"],
        "router": naming.router(run),
        "name": run.config["router"]["name"],
        "setting": naming.setting(run),
        "precision_at_1": interval(run.final(f"{prefix}_precision_at_1")),
        "routing": _routing(run, prefix),
        "seeds": run.summary["seeds"],
        "steps": run.summary["steps"],
        "eval_every": run.config["eval_every"],
        "diverged": run.summary["diverged"],
    }


def _routing(run: Run, prefix: str) -> dict[str, Numbers]:
    """The metrics of the router, means over its layers for each seed; none of Soft MoE."""
    final = run.summary["final"]
    layers = {
        block: {name: value["per_seed"] for name, value in layer.items()}
        for block, layer in final.get(f"{prefix}_router", {}).items()
    }
    found = {name: interval(naming.over_layers(layers, name)) for name in next(iter(layers.values()), {})}
    if stability := _stability(run, prefix):
        found["stability"] = interval(stability)
    return found


def _stability(run: Run, prefix: str = "test") -> list[float | None]:
    """By seed, the mean over training; empty where a run has none, and for a run of several workdirs, without rows."""
    if (name := f"{prefix}_stability") not in run.summary["final"] or not run.rows:
        return []
    course = [naming.over_layers(row[name]) for row in run.rows[1:]]  # from row to row: the first has none before it
    return [None if None in seed else float(np.mean(seed)) for seed in zip(*course, strict=True)]


def _stability_minus(run: Run, reference: Run | None) -> Numbers | None:
    if reference is None or not (mine := _stability(run)) or not (others := _stability(reference)):
        return None
    return difference_of(run, reference, mine, others)


def _step_seconds(run: Run) -> float | None:
    """The median over the second half of the rows, all seeds together; of runs of several workdirs it is not known."""
    times = [row["performance"]["step_seconds"] for row in run.rows[len(run.rows) // 2 :] if row.get("performance")]
    times = [time for time in times if time is not None]
    return float(np.median(times)) if times else None


def markdown(numbers: Numbers) -> list[str]:
    """The lines of the table, but for what is left out."""
    lines = []
    for steps, final in _by_length(numbers["final"]):
        lines += [f"### Test, {final[0]['dataset']}: precision-at-1 after {steps} steps", ""]
        lines += [_stand_in(numbers["stand_in"]), ""] if numbers["stand_in"] else []
        lines += [*grid(_FINAL_HEADER, map(_final_cells, final)), ""]
        lines += [*_FINAL_EXPLAINED, *_PAPER, "", *_routing_lines(final)]
    for steps, tried in _by_length(numbers["sweep"]):
        lines += [f"### Validation, {steps} steps", ""]
        lines += [*grid(_SWEEP_HEADER, map(_sweep_cells, tried)), ""]
    return lines


def _by_length(rows: Sequence[Numbers]) -> Iterator[tuple[int, list[Numbers]]]:
    """By the steps that a run trains for, which the rows are in the order of."""
    for steps, alike in itertools.groupby(rows, lambda row: row["steps"]):
        yield steps, list(alike)


def _routing_lines(rows: Sequence[Numbers]) -> list[str]:
    """What the routers do, in those columns for which some of them have a number."""
    shown = [name for name in ROUTING if any(name in row["routing"] for row in rows)]
    if not shown:
        return []

    paired = any(row["stability_minus_hard"] for row in rows)

    def cells(row: Numbers) -> list[str]:
        found = row["routing"]
        cells = [row["router"], row["setting"], *(_cell(found[n]["mean"]) if n in found else "-" for n in shown)]
        return [*cells, plus_minus(row["stability_minus_hard"], signed=True)] if paired else cells

    every = " or ".join(map(str, sorted({row["eval_every"] for row in rows if "stability" in row["routing"]})))
    but = ", but for stability" if "stability" in shown else ""
    explained = [text.format(every=every) for name, text in _EXPLAINED.items() if name in shown]
    return [
        f"### What the routers do after {rows[0]['steps']} steps",
        "",
        *grid(
            ["router", "setting", *(ROUTING[name] for name in shown), *["stability minus hard"] * paired],
            map(cells, rows),
        ),
        "",
        f"At the end of training{but}, means over groups, layers and seeds.",
        "",
        *([*explained, ""] if explained else []),
    ]


def _stand_in(network: Numbers) -> str:
    model, moe = network["model"], network["moe"]
    depth, width = (f"{model[name]}" if model[name] else "the usual" for name in ("depth", "width"))
    return (
        f"A stand-in for V-MoE S/32 on JFT-300M, which is not public: {depth} blocks of width {width} on "
        f"{network['examples']}, {len(moe['blocks'])} of them with {moe['num_experts']} experts, each of which takes "
        f"{network['router']['k']} tokens of a group of {moe['group_images']} images."
    )


def _cell(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"  # no -0.00


def _final_cells(row: Numbers) -> list[str]:
    return [
        row["router"],
        row["setting"],
        plus_minus(row["precision_at_1"]),
        plus_minus(row["minus_hard"], signed=True),
        _cell(row["detectable"]),
        _cell(row["step_over_hard"]),
        *tables.outcome(row),
    ]


def _sweep_cells(row: Numbers) -> list[str]:
    routing = row["routing"]
    return [
        row["router"],
        row["setting"],
        plus_minus(row["precision_at_1"]),
        *(_cell(routing[name]["mean"]) if name in routing else "-" for name in ("dropped_mass", "support")),
        *tables.outcome_of_candidate(row),
    ]


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    return tables.main("experiments.vmoe.report.table", __doc__, make, arguments)


if __name__ == "__main__":
    console.run(main)
