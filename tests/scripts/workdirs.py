"""Workdirs as the trainer leaves them, with numbers of the test's own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_collections
import numpy as np

from configs import cifar100_vit, mnist_pruning, vmoe, vmoe_clusters
from experiments.core.config import to_json
from experiments.core.record.files import write_compressed, write_json
from experiments.core.record.metrics import Row, Writer, sha256_of
from experiments.core.record.summary import summarize
from experiments.core.record.workdir import Workdir
from tests.experiments.support import set_fields


def write_run(
    path: Path,
    config: ml_collections.ConfigDict,
    rows: Sequence[Row],
    experiment: str,
    examples: Mapping[str, np.ndarray] | None = None,
) -> None:
    """A finished run of `config` that wrote these rows, and kept `examples`."""
    workdir = Workdir(path)
    path.mkdir(parents=True)
    write_json(workdir.config, to_json(config))
    write_json(workdir.environment, {"experiment": experiment, "resumed": []})
    writer = Writer(workdir.metrics, list(rows))
    writer.close()
    sums = {"metrics_sha256": sha256_of(rows)}
    sums |= {"examples_sha256": write_compressed(workdir.examples, dict(examples))} if examples else {}
    write_json(workdir.summary, summarize(list(config.seeds), rows[-1]) | sums)


def _start(epoch: float, step: int, seconds: float, values: Sequence[Any]) -> Row:
    """What every row begins with; seeds without a value have diverged."""
    return {"epoch": epoch, "step": step, "seconds": float(seconds), "diverged": [value is None for value in values]}


def write_workdir(
    path: Path,
    errors: list[list[float | None]],
    *,
    variant: str = "relaxed",
    hardened: list[float | None] | None = None,
    **fields: Any,
) -> None:
    """A finished pruning run whose error was `errors[epoch][seed]`, and after hardening `hardened[seed]` at the end.

    `fields` are the config's, with `__` for the dots; a `None` stands for a seed that diverged.
    """
    seeds = fields.pop("seeds", tuple(range(len(errors[0]))))
    config = mnist_pruning.get_config(variant)
    set_fields(config, fields)
    rounds = len(errors) - 1
    config.update(
        {"seeds": seeds} | ({"epochs": rounds} if "epochs" in config else {"steps": 10 * rounds, "eval_every": 10})
    )
    name = "test_error" if config.split == "test" else "valid_error"
    rows = []
    for epoch, values in enumerate(errors):
        density = [None if value is None else 0.1 for value in values]
        rows.append(
            {
                **_start(epoch, 10 * epoch, 6.0 * epoch, values),
                "train_loss": [None if epoch == 0 or value is None else value / 50 for value in values],
                name: values,
                "train_density": density,
                "hardened_error": values if hardened is None or epoch < len(errors) - 1 else hardened,
                "hardened_density": density,
            }
        )
    write_run(path, config, rows, "mnist_pruning")


def rows_of_pruning(config: ml_collections.ConfigDict) -> list[Row]:
    """Rows of a pruning run whose seeds come to errors of 5, 6, ... %."""
    values = [5.0 + number for number in range(len(config.seeds))]
    measured = {"test_error": values, "train_density": values, "hardened_error": values, "hardened_density": values}
    return [{**_start(epoch, 10 * epoch, epoch, values), **measured} for epoch in range(config.epochs + 1)]


def write_fine_tuning(
    path: Path,
    accuracies: Mapping[int, list[float | None]],
    variant: str = "small",
    *,
    ranks: Sequence[Sequence[int]] | None = None,
    **fields: Any,
) -> None:
    """A finished fine-tuning run whose top-k accuracy was `accuracies[k][seed]` at the end, after a second a step.

    `ranks[seed][image]` were kept of the labels, if they are given; `fields` are as in `write_workdir`.
    """
    first = next(iter(accuracies.values()))
    seeds = fields.pop("seeds", tuple(range(len(first))))
    config = cifar100_vit.get_config(variant)
    set_fields(config, fields)
    config.seeds = seeds
    config.eval_every = config.steps
    lost = [value is None for value in first]

    def row(step: int, accuracies: Mapping[int, list[float | None]]) -> Row:
        of_seeds = zip(*accuracies.values(), strict=True)
        return {
            **_start(step / 400, step, step, first if step else lost),
            "mean_topk_error": [None if None in values else 100 - float(np.mean(values)) for values in of_seeds],
            "train_loss": [None if none or not step else 1.5 for none in lost],
            f"{'test' if config.split == 'test' else 'valid'}_accuracy": {str(k): v for k, v in accuracies.items()},
            "learning_rate": 0.001 if step else None,
            "performance": {"step_seconds": 1.0 if step else None, "mfu": None},
        }

    chance = {k: [float(k)] * len(lost) for k in accuracies}
    examples = None if ranks is None else {"rank": np.array(ranks, np.uint8)}
    write_run(path, config, [row(0, chance), row(config.steps, accuracies)], "cifar100_vit", examples)


def write_vmoe(
    path: Path,
    precisions: Sequence[Sequence[float | None]],
    variant: str = "small,router=hard",
    **fields: Any,
) -> None:
    """A finished run of V-MoE whose precision was `precisions[row][seed]`; `fields` are as in `write_workdir`."""
    config = vmoe.get_config(variant)
    set_fields(config, fields)
    config.seeds = fields.get("seeds", tuple(range(len(precisions[0]))))
    prefix = "test" if config.split == "test" else "valid"
    every = config.eval_every = config.steps // (len(precisions) - 1)
    rows: list[Row] = []
    for number, values in enumerate(precisions):
        routing = {"block_1": {"support": [None if value is None else 28.0 for value in values]}}
        rows.append(
            {
                **_start(number, number * every, number, values),
                f"{prefix}_precision_at_1": list(values),
                f"{prefix}_router": routing,
                "learning_rate": None,
                "performance": {"step_seconds": 1.0 if number else None},
            }
        )
    write_run(path, config, rows, "vmoe")


def write_clusters(
    path: Path,
    router: str,
    losses: Sequence[float | None],
    recoveries: Sequence[Sequence[float | None]],
    **fields: Any,
) -> None:
    """A finished run of the task of clusters that recovered `recoveries[row][seed]`, every 50 steps.

    The true centres recover 80 %; `losses` are those at the end, `fields` as in `write_workdir`.
    """
    config = vmoe_clusters.get_config(f"router={router}")
    set_fields(config, fields)
    config.seeds = tuple(range(len(losses)))
    config.steps = 50 * (len(recoveries) - 1)
    prefix = "test" if config.split == "test" else "valid"
    count = len(losses)
    rows: list[Row] = [
        {
            **_start(number, 50 * number, number, losses),
            f"{prefix}_loss": list(losses) if number == len(recoveries) - 1 else [100.0] * count,
            f"{prefix}_recovery": list(values),
            f"{prefix}_reachable": [80.0] * count,
            f"{prefix}_router": {"support": [25.0] * count, "dropped_mass": [0.0] * count},
        }
        for number, values in enumerate(recoveries)
    ]
    write_run(path, config, rows, "vmoe_clusters")


def write_bench(results: Path, benchmark: str, platform: str, **record: Any) -> None:
    """A record of a benchmark, the only one of its machine: measured on a `cpu`, or on a `tpu`."""
    devices = {"platform": platform, "kind": "cpu" if platform == "cpu" else "TPU v9"}
    environment = {"devices": devices, "machine": {"cpu": "Z80", "cores": 2}}
    (results / "bench").mkdir(exist_ok=True)
    write_json(results / "bench" / f"{platform}.json", {benchmark: {"environment": environment, **record}})


def answers(finding):
    """The two answers: at the paper's settings, and tuned."""
    return tuple(verdict and verdict.answer for verdict in (finding.as_stated, finding.tuned))
