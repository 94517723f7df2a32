"""The table of the fine-tuning experiment: `python -m experiments.cifar100_vit.report.table DIR`.

Reads the workdirs below DIR and writes DIR/table.md, which it also prints, and DIR/table.json.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from etils import epy

from experiments.cifar100_vit.report import lines, naming
from experiments.core import console
from experiments.core.record.summary import interval
from experiments.core.report import tables
from experiments.core.report.paired import difference, over_examples
from experiments.core.report.results import Run

with epy.lazy_imports():  # --help does without it
    from experiments.cifar100_vit import experiment

Numbers = dict[str, Any]


def make(directory: Path) -> list[Path]:
    """Prints the table of the runs below `directory`, writes it there, and returns the files written."""
    return tables.make(directory, naming.load(directory), measure, lines.all_of)


def measure(runs: Sequence[Run], chosen: frozenset[str]) -> Numbers:
    """All numbers of the table; `chosen` names the runs of the sweep that won."""
    pretraining = [run for run in runs if naming.is_pretraining(run)]
    tried = [run for run in runs if naming.is_tried(run)]
    final = naming.final(runs)
    paper, own = ([run for run in final if naming.is_at_paper_rate(run) == at_paper] for at_paper in (True, False))
    compared = naming.by_circumstances(own)
    # Of a suite with such runs only: other tables are as they were.
    more: Numbers = {}
    if paper:
        more["final_at_paper_rates"] = _final_rows(paper)
    if len(compared) > 1:
        more["final_in_other_circumstances"] = [_final_rows(rows) for rows in compared[1:]]
    if any(naming.has_features(run) for run in final):
        more["features"] = next(run.config["features"] for run in final if naming.has_features(run))
    if any(map(naming.is_convolutional, final)):
        more["whole_network"] = True
    if tried:
        more["at_an_edge"] = _at_an_edge(tried, chosen)
    return more | {
        "pretraining": [_pretraining_row(run) for run in pretraining],
        "stand_in": any(naming.is_stand_in(run) for run in final),
        "final": _final_rows(compared[0] if compared else []),
        "sweep": [_sweep_row(run, chosen) for run in naming.by_loss(tried)],
    }


def _final_rows(runs: Sequence[Run]) -> list[Numbers]:
    return [_final_row(run, naming.reference(run, runs)) for run in runs]


def _at_an_edge(tried: Sequence[Run], chosen: frozenset[str]) -> list[str]:
    """The chosen runs with the least or greatest rate or lam tried for their loss, or with the greatest decay."""
    rivals: dict[tuple[Any, ...], list[Run]] = {}
    for run in tried:
        rivals.setdefault((naming.loss(run), *naming.circumstances(run)), []).append(run)
    found = []
    for runs in rivals.values():
        rates = {run.config["optimizer"]["learning_rate"] for run in runs}
        lams = {run.config["loss"]["lam"] for run in runs}
        most = max(map(naming.decay, runs))
        for run in runs:
            ends = run.config["optimizer"]["learning_rate"] in (min(rates), max(rates))
            ends |= len(lams) > 1 and run.config["loss"]["lam"] in (min(lams), max(lams))
            if run.name in chosen and (ends or naming.decay(run) == most > 0):
                found.append(run.name)
    return sorted(found)


def _pretraining_row(run: Run) -> Numbers:
    return {
        "run": run.name,
        "dataset": run.config["dataset"],
        "model": run.config.get("model"),
        "epochs": run.summary["epochs"],
        "seconds": run.summary["seconds"],
        "accuracy": interval(run.final("valid_accuracy/1")),
    }


def _final_row(run: Run, reference: Run | None) -> Numbers:
    others = _accuracies(run, "test")
    paired = {k: None if reference is None else _difference(run, reference, k) for k in others}
    # A run that trains alone has more processors than those that trained side by side.
    comparable = reference is None or reference.trained_on == run.trained_on
    seconds, steps = run.summary["seconds"], run.summary["steps"]
    return _common(run) | {
        "accuracy": others,
        "minus_cross_entropy": paired,
        "seconds_per_step_and_seed": seconds / (steps * len(run.summary["seeds"])) if comparable else None,
    }


def _difference(run: Run, reference: Run, k: str) -> Numbers:
    """Paired by seed; and where ranks were kept, by image."""
    metric = f"test_accuracy/{k}"
    by_image = over_examples(run, reference, metric, lambda kept: 100.0 * (kept[experiment.RANK] < int(k)))
    found = difference(run, reference, metric)
    return found if by_image is None else found | {"interval95_over_images": by_image}


def _sweep_row(run: Run, chosen: frozenset[str]) -> Numbers:
    return _common(run) | {"accuracy": _accuracies(run, "valid"), "chosen": run.name in chosen}


def _common(run: Run) -> Numbers:
    return {
        "run": run.name,
        "dataset": run.config["dataset"],
        "loss": naming.loss(run),
        "setting": naming.setting(run),
        "train_loss": interval(run.final("train_loss")),
        "mean_topk_accuracy": interval(
            [None if error is None else 100 - error for error in run.final("mean_topk_error")]
        ),
        "seeds": run.summary["seeds"],
        "steps": run.summary["steps"],
        "images_per_class": naming.circumstances(run)[0],
        "diverged": run.summary["diverged"],
    }


def _accuracies(run: Run, prefix: str) -> dict[str, Numbers]:
    """By k, in order."""
    found = run.summary["final"][f"{prefix}_accuracy"]
    return {k: interval(run.final(f"{prefix}_accuracy/{k}")) for k in sorted(found, key=int)}


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    return tables.main("experiments.cifar100_vit.report.table", __doc__, make, arguments)


if __name__ == "__main__":
    console.run(main)
