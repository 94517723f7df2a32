"""Workdirs as the trainer leaves them, with numbers of the test's own."""

from pathlib import Path
from typing import Any

from configs.mnist_pruning import get_config
from experiments.core.config import to_json
from experiments.core.files import write_json
from experiments.core.metrics import Writer
from experiments.core.summary import summarize
from experiments.core.workdir import Workdir


def write_workdir(
    path: Path, errors: list[list[float | None]], *, hardened: list[float | None] | None = None, **fields: Any
) -> None:
    """A finished run whose error was `errors[epoch][seed]`, and after hardening `hardened[seed]` at the end.

    `fields` are the config's, with `__` for the dots; a `None` stands for a seed that diverged.
    """
    seeds = fields.pop("seeds", tuple(range(len(errors[0]))))
    config = get_config()
    config.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
    config.update(seeds=seeds, epochs=len(errors) - 1)
    workdir = Workdir(path)
    path.mkdir(parents=True)
    write_json(workdir.config, to_json(config))
    name = "test_error" if config.split == "test" else "valid_error"
    rows = []
    for epoch, values in enumerate(errors):
        density = [None if value is None else 0.1 for value in values]
        rows.append(
            {
                "epoch": epoch,
                "step": 10 * epoch,
                "seconds": 6.0 * epoch,
                "diverged": [value is None for value in values],
                "train_loss": [None if epoch == 0 or value is None else value / 50 for value in values],
                name: values,
                "train_density": density,
                "hardened_error": values if hardened is None or epoch < len(errors) - 1 else hardened,
                "hardened_density": density,
            }
        )
    writer = Writer(workdir.metrics, rows)
    writer.close()
    write_json(workdir.summary, summarize(list(seeds), rows[-1]))
