"""The table of the pruning experiment: `python -m experiments.mnist_pruning.report.table DIR`.

Reads the workdirs below DIR and writes DIR/table.md, which it also prints, and DIR/table.json.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.core import console
from experiments.core.record.summary import interval
from experiments.core.report import tables
from experiments.core.report.markdown import grid, line, mean, plus_minus
from experiments.core.report.paired import difference
from experiments.core.report.results import Run
from experiments.mnist_pruning.report import best, naming, why

Numbers = dict[str, Any]

# Section 6 gives one number in print, for hard top-k with the gradient of entropic optimal transport.
PAPER_OT_ERROR = 5.9

_FINAL_HEADER = (
    "method",
    "setting",
    "test error, %",
    "minus hard",
    "density in training, %",
    "hardened error, %",
    "epochs to hard's error",
    "hardened epochs to it",
    "s per epoch and seed",
    "seeds",
    "diverged",
)
_SWEEP_HEADER = ("method", "setting", "validation error, %", "hardened, %", "density in training, %", "diverged", "")


def make(directory: Path) -> list[Path]:
    """Prints the table of the runs below `directory`, writes it there, and returns the files written."""
    return tables.make(directory, naming.load(directory), measure, markdown)


def measure(runs: Sequence[Run], chosen: frozenset[str]) -> Numbers:
    """All numbers of the table; `chosen` names the runs of the sweep that won."""
    return (
        {
            "final": [_final_group(key, members) for key, members in naming.group(runs, "test").items()],
            "sweep": [_sweep_group(key, members, chosen) for key, members in naming.group(runs, "validation").items()],
        }
        | best.measure(runs, chosen)
        | why.measure(runs)
    )


def _final_group(key: tuple[Any, ...], members: list[Run]) -> Numbers:
    rows = [_final_row(run, naming.reference(run, members, "hard")) for run in members]
    return _describe(key, members) | {"rows": rows}


def _final_row(run: Run, hard: Run | None) -> Numbers:
    seeds, epochs = run.summary["seeds"], run.summary["epochs"]
    return _common(run) | {
        "test_error": interval(run.final("test_error")),
        "minus_hard": None if hard is None else difference(run, hard, "test_error"),
        "to_hards_error": None if hard is None else _reached(run, hard, "test_error"),
        "hardened_to_hards_error": None if hard is None else _reached(run, hard, "hardened_error"),
        "seconds": run.summary["seconds"],
        "seconds_per_epoch_and_seed": run.summary["seconds"] / (epochs * len(seeds)),
        "epochs": epochs,
    }


def _reached(run: Run, hard: Run, metric: str) -> Numbers:
    """Finds by seed the first epoch with at most the error that hard top-k ends with, and the density then."""
    ends = dict(zip(hard.summary["seeds"], hard.final("test_error"), strict=True))
    epochs: list[float | None] = []
    shares: list[float | None] = []
    for i, seed in enumerate(run.summary["seeds"]):
        errors = [(row, row[metric][i]) for row in run.rows]
        end = ends.get(seed)
        found = next((row for row, error in errors if None not in (error, end) and error <= end), None)
        epochs.append(None if found is None else found["epoch"])
        shares.append(None if found is None else found["train_density"][i])
    return {"epochs": interval(epochs), "density": interval(shares)}


def _sweep_group(key: tuple[Any, ...], members: list[Run], chosen: frozenset[str]) -> Numbers:
    rows = [
        _common(run) | {"valid_error": interval(run.final("valid_error")), "chosen": run.name in chosen}
        for run in members
    ]
    return _describe(key, members) | {"rows": rows}


def _describe(key: tuple[Any, ...], members: list[Run]) -> Numbers:
    dataset, density, layers = key
    epochs = sorted({run.summary["epochs"] for run in members})
    return {"dataset": dataset, "density": density, "prune_layers": list(layers), "epochs": epochs}


def _common(run: Run) -> Numbers:
    return {
        "run": run.name,
        "method": naming.method(run),
        "setting": naming.setting(run),
        "hardened_error": interval(run.final("hardened_error")),
        "train_density": interval(run.final("train_density")),
        "seeds": run.summary["seeds"],
        "diverged": run.summary["diverged"],
    }


def markdown(numbers: Numbers) -> list[str]:
    """The lines of the table, but for what is left out."""
    lines = []
    for section in numbers["final"]:
        lines += [f"### Test, {_title(section)}", "", *grid(_FINAL_HEADER, map(_final_cells, section["rows"]))]
        if section["dataset"] == "mnist":
            paper = ["*the paper's number:* hard, optimal-transport gradient", "", f"{PAPER_OT_ERROR}"]
            lines.append(line([*paper, *["not stated"] * (len(_FINAL_HEADER) - len(paper))]))
        lines.append("")
    if numbers["final"]:
        lines += [
            "Mean ± half width of the 95 % t-interval over seeds; *minus hard* is paired by seed, runs with a",
            "tuned learning rate against such a run; *hardened* keeps the largest weights only, as many as the density",
            "allows. *Epochs to hard's error*: until the error that hard top-k ends with, by seed, and how many",
            "weights are not 0 then, or how many seeds get there; *hardened*: until the largest weights alone have it.",
            "The seeds of a run train together: its seconds are divided among them.",
            "",
        ]
    for section in numbers["sweep"]:
        lines += [
            f"### Validation, {_title(section)}",
            "",
            *grid(_SWEEP_HEADER, map(_sweep_cells, section["rows"])),
            "",
        ]
    return lines + best.markdown(numbers) + why.markdown(numbers)


def _title(section: Numbers) -> str:
    layers = " and ".join(map(str, section["prune_layers"]))
    plural = "s" if len(section["prune_layers"]) > 1 else ""
    of = f"layer{plural} {layers}" if layers else "every matrix but embeddings"
    epochs = " or ".join(map(str, section["epochs"]))
    return f"{section['dataset']}: {100 * section['density']:g} % of {of} kept, {epochs} epochs"


def _final_cells(row: Numbers) -> list[str]:
    return [
        row["method"],
        row["setting"],
        plus_minus(row["test_error"]),
        plus_minus(row["minus_hard"], signed=True),
        plus_minus(row["train_density"], scale=100),
        plus_minus(row["hardened_error"]),
        _in_brackets(row["to_hards_error"]),
        "-" if row["hardened_to_hards_error"] is None else epochs_of(row["hardened_to_hards_error"]),
        f"{row['seconds_per_epoch_and_seed']:.2g}",
        *tables.outcome(row),
    ]


def epochs_of(reached: Numbers) -> str:
    """`1.20 ± 0.30`; unless all seeds get there, in how many they do."""
    seeds = reached["epochs"]["per_seed"]
    there = len(seeds) - seeds.count(None)
    return plus_minus(reached["epochs"]) if there == len(seeds) else f"in {there} of {len(seeds)} seeds"


def _in_brackets(reached: Numbers | None) -> str:
    """The epochs, and the density then, if every seed got there."""
    if reached is None or None in reached["epochs"]["per_seed"]:
        return "-" if reached is None else epochs_of(reached)
    return f"{epochs_of(reached)} (at {mean(reached['density'], scale=100)} %)"


def _sweep_cells(row: Numbers) -> list[str]:
    return [
        row["method"],
        row["setting"],
        plus_minus(row["valid_error"]),
        plus_minus(row["hardened_error"]),
        mean(row["train_density"], scale=100),
        *tables.outcome_of_candidate(row),
    ]


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    return tables.main("experiments.mnist_pruning.report.table", __doc__, make, arguments)


if __name__ == "__main__":
    console.run(main)
