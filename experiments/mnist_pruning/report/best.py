"""The table of every method at its best: what each errs by at a number of weights that is the same for all."""

from collections.abc import Sequence
from typing import Any

from experiments.core.record.summary import interval
from experiments.core.report import tables
from experiments.core.report.markdown import grid, mean, plus_minus
from experiments.core.report.paired import difference
from experiments.core.report.results import Run
from experiments.mnist_pruning.report import naming

Numbers = dict[str, Any]

BUDGETS = {"network": "the whole network", "matrix": "each matrix"}
# What differences are to, by method.
REFERENCES = ("dense", "gradual", "movement")
METRIC = "hardened_error"
_OF_PRUNING = ("prune_layers", "budget", "density")  # which the dense network has no use for

_HEADER = (
    "method",
    "setting",
    "test error, %",
    *(f"minus {reference}" for reference in REFERENCES),
    "density in training, %",
    "s per epoch and seed",
    "seeds",
    "diverged",
)
_SWEEP_HEADER = ("method", "setting", "validation error, %", "density in training, %", "diverged", "")


def cells(runs: Sequence[Run]) -> dict[tuple[str, str, float], list[Run]]:
    """The runs on test that prune, by task, budget and density, in the order of METHODS; highest density first."""
    found: dict[tuple[str, str, float], list[Run]] = {}
    for run in naming.best_of(runs, "test"):
        if run.config["method"] != "dense":
            config = run.config
            found.setdefault((naming.task(run), config["budget"], config["density"]), []).append(run)
    order = list(BUDGETS)
    return dict(sorted(found.items(), key=lambda item: (item[0][0], order.index(item[0][1]), -item[0][2])))


def dense_of(runs: Sequence[Run], task: str) -> Run | None:
    """The dense network at its best."""
    found = (run for run in naming.best_of(runs, "test") if run.config["method"] == "dense")
    return next((run for run in found if naming.task(run) == task), None)


def measure(runs: Sequence[Run], chosen: frozenset[str]) -> Numbers:
    """All numbers of the table; `chosen` names the runs of the sweep that won. Empty where there is no such run."""
    sections = [_section(key, members, runs) for key, members in cells(runs).items()]
    sweep = [_candidate(run, chosen) for run in naming.best_of(runs, "validation")]
    return {"best": sections, "best_sweep": sweep} if sections or sweep else {}


def _section(key: tuple[str, str, float], members: list[Run], runs: Sequence[Run]) -> Numbers:
    task, budget, density = key
    dense = dense_of(runs, task)
    shown = ([dense] if dense else []) + members
    rows = [_row(run, shown) for run in shown]
    return {"dataset": task, "budget": budget, "density": density, "rows": rows}


def _row(run: Run, shown: Sequence[Run]) -> Numbers:
    # Of the dense network all weights count: it is not to be compared at the density.
    dense = run.config["method"] == "dense"
    seeds, epochs = run.summary["seeds"], run.summary["epochs"]
    return _common(run) | {
        "error": interval(run.final("test_error" if dense else METRIC)),
        "minus": {name: _minus(run, shown, name) for name in REFERENCES},
        "seconds_per_epoch_and_seed": run.summary["seconds"] / (epochs * len(seeds)),
    }


def _minus(run: Run, shown: Sequence[Run], name: str) -> Numbers | None:
    dense = name == "dense"
    reference = naming.reference(run, shown, name, _OF_PRUNING if dense else ())
    if reference is None or run.config["method"] == "dense":
        return None
    metric = "test_error" if dense else METRIC
    return difference(run, reference, METRIC, of_reference=metric)


def _candidate(run: Run, chosen: frozenset[str]) -> Numbers:
    config = run.config
    return _common(run) | {
        "density": config["density"],
        "error": interval(run.final("valid_error" if config["method"] == "dense" else METRIC)),
        "chosen": run.name in chosen,
    }


def _common(run: Run) -> Numbers:
    return {
        "run": run.name,
        "method": naming.method(run),
        "setting": naming.setting(run),
        "train_density": interval(run.final("train_density")),
        "seeds": run.summary["seeds"],
        "diverged": run.summary["diverged"],
    }


def markdown(numbers: Numbers) -> list[str]:
    """The lines of the table; none where there are no numbers."""
    lines = []
    for section in numbers.get("best", []):
        title = f"{100 * section['density']:g} % of {BUDGETS[section['budget']]} kept"
        lines += [f"### Test, {section['dataset']}: every method at its best, {title}", ""]
        lines += [*grid(_HEADER, [_cells(row, section) for row in section["rows"]]), ""]
    if numbers.get("best"):
        lines += [
            "Every kind with a cosine learning rate, at the best on validation of as many settings as any other that",
            "prunes; the dense network has its learning rate alone to choose. The error is that of the largest weights",
            "alone, as many as the density allows; of the dense network, of all.",
            "*Minus* is paired by seed. Mean ± half width of the 95 % t-interval over seeds.",
            "",
        ]
    candidates = numbers.get("best_sweep", [])
    for density in sorted({row["density"] for row in candidates}, reverse=True):
        lines += [f"### Validation, every method at its best, {100 * density:g} % of the whole network kept", ""]
        rows = [row for row in candidates if row["density"] == density]
        lines += [*grid(_SWEEP_HEADER, map(_sweep_cells, rows)), ""]
    return [*lines, *told(numbers), ""] if candidates else lines


def told(numbers: Numbers) -> list[str]:
    """A list in Markdown: how many settings of each method trained, and who keeps more or less than is asked for."""
    candidates = numbers["best_sweep"]
    best = max(100 - row["error"]["mean"] for row in candidates if row["error"]["mean"] is not None)
    by_method: dict[str, list[bool]] = {}
    for row in candidates:
        right = [None if error is None else 100 - error for error in row["error"]["per_seed"]]
        by_method.setdefault(row["method"], []).append(all(one is not None and one > best / 2 for one in right))
    counts = "; ".join(f"{name}, {sum(trained)} of {len(trained)}" for name, trained in by_method.items())
    found = [
        "- Settings that trained on validation, in every seed at least half as many images right as with the best of "
        f"all: {counts}."
    ]
    off = [
        f"{row['method']}, {mean(row['train_density'], scale=100)} instead of {100 * section['density']:g} % of "
        f"{BUDGETS[section['budget']]}"
        for section in numbers["best"]
        for row in section["rows"]
        if _is_off(row, section)
    ]
    return [*found, f"- Weights kept that are not those asked for: {'; '.join(off)}."] if off else found


def _is_off(row: Numbers, section: Numbers) -> bool:
    """Whether a method keeps other than it is asked to, by more than a twentieth; the dense network is not asked."""
    share = row["train_density"]["mean"]
    asked = row["minus"]["dense"] is not None and share is not None
    return asked and abs(share - section["density"]) > section["density"] / 20


def _cells(row: Numbers, section: Numbers) -> list[str]:
    return [
        row["method"],
        row["setting"],
        plus_minus(row["error"]),
        *(plus_minus(row["minus"][name], signed=True) for name in REFERENCES),
        plus_minus(row["train_density"], scale=100) + (" (not as asked)" if _is_off(row, section) else ""),
        f"{row['seconds_per_epoch_and_seed']:.2g}",
        *tables.outcome(row),
    ]


def _sweep_cells(row: Numbers) -> list[str]:
    return [
        row["method"],
        row["setting"],
        plus_minus(row["error"]),
        mean(row["train_density"], scale=100),
        *tables.outcome_of_candidate(row),
    ]
