"""The table of the task: `python -m experiments.vmoe_clusters.report.table DIR`.

Reads the workdirs below DIR and writes DIR/table.md, which it also prints, and DIR/table.json.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.core import console
from experiments.core.record.summary import interval
from experiments.core.report import tables
from experiments.core.report.markdown import grid, plus_minus
from experiments.core.report.paired import detectable, difference
from experiments.core.report.results import Run
from experiments.vmoe_clusters.kinds import BEST
from experiments.vmoe_clusters.report import naming

Numbers = dict[str, Any]


def make(directory: Path) -> list[Path]:
    """Prints the table of the runs below `directory`, writes it there, and returns the files written."""
    return tables.make(directory, naming.load(directory), measure, markdown)


def measure(runs: Sequence[Run], chosen: frozenset[str]) -> Numbers:
    """All numbers of the table; `chosen` names the runs of the sweep that won."""
    final = naming.of_split(runs, "test")
    return {
        "final": [_final_row(run, final) for run in final],
        "sweep": [
            _common(run, "valid") | {"chosen": run.name in chosen} for run in naming.of_split(runs, "validation")
        ],
    }


def _final_row(run: Run, final: Sequence[Run]) -> Numbers:
    best, hard = (naming.reference(run, name, final) for name in (BEST, "hard"))
    minus_hard = None if hard is None or run.config["router"]["name"] == BEST else difference(run, hard, "test_loss")
    return _common(run, "test") | {
        "excess": None if best is None else difference(run, best, "test_loss"),
        "minus_hard": minus_hard,
        "detectable": detectable(minus_hard),
        "steps_to_reach": interval([None if step is None else float(step) for step in naming.steps_to_reach(run)]),
    }


def _common(run: Run, prefix: str) -> Numbers:
    return {
        "run": run.name,
        "noise": naming.noise(run),
        "router": naming.router(run),
        "name": run.config["router"]["name"],
        "setting": naming.setting(run),
        **{name: interval(run.final(f"{prefix}_{name}")) for name in ("loss", "recovery", "reachable")},
        **{name: interval(run.final(f"{prefix}_router/{name}")) for name in ("support", "dropped_mass")},
        "seeds": run.summary["seeds"],
        "steps": run.summary["steps"],
        "diverged": run.summary["diverged"],
    }


def markdown(numbers: Numbers) -> list[str]:
    """The lines of the table, but for what is left out."""
    lines = []
    if numbers["final"]:
        lines += ["### Test: loss over that of the best assignment, %", "", *_excesses(numbers["final"]), ""]
        header = ["router", "setting", "loss, %", "excess", "minus hard", "could be seen", "recovered, %"]
        header += ["steps to 90 % of it", "tokens of an expert", "dropped mass, %", "seeds", "diverged"]
        lines += ["### Test in full", ""]
        for where, rows in _by_circumstances(numbers["final"]).items():
            lines += [f"At {where}: the true centres recover {plus_minus(rows[0]['reachable'])} %.", ""]
            lines += [*grid(header, map(_final_cells, rows)), ""]
        lines += [
            "Mean ± half width of the 95 % t-interval over seeds, each a problem of its own; differences are paired by",
            "seed. Loss: what is not explained of the variance of the targets. Excess: loss minus that with the best",
            "assignment, where gates and experts are all that is learned. Could be seen: the difference to the hard",
            "router that a paired t-test at 5 % would find in 80 % of such experiments. Recovered: pairs of token and",
            "cluster that the cluster's expert takes. Steps to 90 %: of what the true centres recover by a hard top-k;",
            "mean over the seeds that get there, and in brackets how many do not.",
            "",
        ]
    if numbers["sweep"]:
        header = ["router", "setting", "loss, %", "recovered, %", "tokens of an expert", "diverged", ""]
        lines += [f"### Validation: noise {numbers['sweep'][0]['noise']:g}", ""]
        lines += [*grid(header, map(_sweep_cells, numbers["sweep"])), ""]
    return lines


def _excesses(rows: Sequence[Numbers]) -> list[str]:
    """Of every router and setting, a column for each noise and number of steps."""
    columns = _by_circumstances(rows)
    names = dict.fromkeys((row["router"], row["setting"]) for row in rows if row["excess"])
    found = {(row["router"], row["setting"], where): row["excess"] for where, alike in columns.items() for row in alike}
    cells = [[*name, *(plus_minus(found.get((*name, where)), signed=True) for where in columns)] for name in names]
    return grid(["router", "setting", *columns], cells)


def _by_circumstances(rows: Sequence[Numbers]) -> dict[str, list[Numbers]]:
    """As `noise 0.1, 1000 steps`; the rows of each."""
    found: dict[str, list[Numbers]] = {}
    for row in rows:
        found.setdefault(f"noise {row['noise']:g}, {row['steps']} steps", []).append(row)
    return found


def _steps(value: Numbers) -> str:
    never = value["per_seed"].count(None)
    brackets = f" ({never})" if never else ""
    return "never" if value["mean"] is None else f"{value['mean']:.0f}{brackets}"


def _final_cells(row: Numbers) -> list[str]:
    return [
        row["router"],
        row["setting"],
        plus_minus(row["loss"]),
        plus_minus(row["excess"], signed=True),
        plus_minus(row["minus_hard"], signed=True),
        "-" if row["detectable"] is None else f"{row['detectable']:.2f}",
        plus_minus(row["recovery"]),
        _steps(row["steps_to_reach"]),
        *(_mean(row[name]) for name in ("support", "dropped_mass")),
        *tables.outcome(row),
    ]


def _sweep_cells(row: Numbers) -> list[str]:
    cells = [plus_minus(row[name]) for name in ("loss", "recovery")]
    return [row["router"], row["setting"], *cells, _mean(row["support"]), *tables.outcome_of_candidate(row)]


def _mean(value: Numbers) -> str:
    return "-" if value["mean"] is None else f"{value['mean']:z.1f}"


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    return tables.main("experiments.vmoe_clusters.report.table", __doc__, make, arguments)


if __name__ == "__main__":
    console.run(main)
