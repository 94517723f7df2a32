"""A small run on digits, and how to start one as people do."""

import dataclasses
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_collections
import numpy as np

from configs.mnist_pruning import get_config
from experiments.core.record import metrics
from experiments.core.suite.plan import Suite, SuiteRun
from experiments.core.training import train

ROOT = Path(__file__).resolve().parents[2]


def set_fields(
    config: ml_collections.ConfigDict, fields: Mapping[str, Any], base: Mapping[str, Any] | None = None
) -> None:
    """Sets those of `base`, by dotted name, then `fields`, with `__` for the dots."""
    named = {name.replace("__", "."): value for name, value in fields.items()}
    config.update_from_flattened_dict(dict(base or {}) | named)


def on_one_device(
    config: ml_collections.ConfigDict, base: Mapping[str, Any], fields: Mapping[str, Any]
) -> ml_collections.ConfigDict:
    """The config with its fields set, as `set_fields` does, and without a mesh unless they have one."""
    set_fields(config, fields, base)
    if not any(name.startswith("mesh") for name in fields):
        del config.mesh
    return config


def small_config(variant: str = "relaxed", **fields: Any) -> ml_collections.ConfigDict:
    """Digits, two seeds, few epochs, a network of one layer; `fields` by dotted name."""
    config = get_config(variant)
    small = {
        "dataset": "digits",
        "seeds": (0, 1),
        "epochs": 3,
        "checkpoint_every": 2,
        "optimizer.learning_rate": 0.1,
        "hidden": (),  # to trace and compile takes as long as the layers are many
        "prune_layers": (1,),
    }
    set_fields(config, fields, small)
    return config


def command(workdir: Path, *options: str, variant: str = "dense") -> list[str]:
    """The command line of a small run, of a network of one layer."""
    return [
        sys.executable,
        "-m",
        "experiments.mnist_pruning",
        f"--config=configs/mnist_pruning.py:{variant}",
        f"--workdir={workdir}",
        "--config.dataset=digits",
        "--config.seeds=(0, 1)",
        "--config.optimizer.learning_rate=0.1",
        "--config.hidden=()",
        "--config.prune_layers=(1,)",
        *options,
    ]


def loaded(experiment: str, workdir: Path, **changes: str) -> dict[str, Any]:
    """Does with a workdir what the documentation says to load what a run has exported; the names that this defines."""
    text = (ROOT / "docs/how_to/experiments.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (code,) = [block for block in blocks if f"experiments.{experiment}." in block]
    for old, new in {"runs/mine": str(workdir), **changes}.items():
        assert old in code
        code = code.replace(old, new)
    names: dict[str, Any] = {}
    exec(code, names)
    return names


def start(arguments: list[str], **options: Any) -> subprocess.Popen[str]:
    """Starts a command in the root of the repository."""
    return subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def is_running(pid: int) -> bool:
    """Whether there is such a process, by `/proc`, and it has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def happens(event: Callable[[], bool]) -> bool:
    """Whether something happens within ten minutes; returns once it has."""
    deadline = time.monotonic() + 600
    while not (happened := event()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return happened


def wait_for_end(pids: list[int]) -> list[int]:
    """Those of `pids` that still run after ten minutes."""
    happens(lambda: not any(map(is_running, pids)))
    return [pid for pid in pids if is_running(pid)]


def rows_without_seconds(workdir: Path) -> list[dict[str, Any]]:
    """The rows of a run, less what may differ between two runs: the times."""
    return [
        {name: value for name, value in row.items() if name not in ("seconds", "performance")}
        for row in metrics.read(workdir / "metrics.jsonl")
    ]


def assert_same_rows(workdir: Path, expected: Path, rtol: float = 1e-5) -> None:
    """Two runs have the same rows up to rounding, but for what may differ."""
    rows, others = ([dict(metrics.flatten(row)) for row in rows_without_seconds(path)] for path in (workdir, expected))
    assert [row["step"] for row in rows] == [row["step"] for row in others]
    for row, other in zip(rows, others, strict=True):
        assert row.keys() == other.keys()
        for name in row:
            values, wanted = (np.asarray(side[name], float) for side in (row, other))  # None: NaN
            np.testing.assert_allclose(values, wanted, rtol=rtol, err_msg=f"{name} of step {row['step']}")


_SUITE_CONFIGS: dict[tuple[str, str], list[tuple[SuiteRun, ml_collections.ConfigDict]]] = {}


def suite_configs(suite: Suite, preset: str) -> list[tuple[SuiteRun, ml_collections.ConfigDict]]:
    """The runs of a preset with their configs; those that wait for a choice have the first of their candidates."""
    made = (suite.recipe.name, preset)
    if made not in _SUITE_CONFIGS:  # hundreds, which several tests look at
        _SUITE_CONFIGS[made] = _suite_configs(suite, preset)
    return _SUITE_CONFIGS[made]


def _suite_configs(suite: Suite, preset: str) -> list[tuple[SuiteRun, ml_collections.ConfigDict]]:
    runs = suite.presets[preset]()
    candidates: dict[str, Any] = {}
    for run in runs:
        if run.candidate_for:
            candidates.setdefault(run.candidate_for, run.setting)
    settings = [dict(candidates[run.best_of] if run.best_of else {}) | dict(run.setting) for run in runs]
    return [(run, suite.config(run, Path("out"), setting)) for run, setting in zip(runs, settings, strict=True)]


def undrawn(suite: Suite) -> Suite:
    """The suite without its report: to draw again what a first call has drawn takes as long as to train for a while.

    That a second call draws, too, is in the tests of `experiments.mnist_pruning.suite`.
    """
    return dataclasses.replace(suite, report=lambda out: [])


def assert_sound(suite: Suite, preset: str) -> None:
    """The trainer takes every run of a preset, and what is compared is alike.

    Choices are made on validation, between runs of one length on the same seeds, which are not those of the results on
    test; every choice has candidates and is used; no two runs have one name, and a demo needs no download.
    """
    made = suite_configs(suite, preset)
    assert len({run.name for run, _ in made}) == len(made)
    seeds: dict[bool, set[int]] = {True: set(), False: set()}
    alike: dict[str, set[Any]] = {}
    for run, config in made:
        train.validate(config)
        suite.recipe.validate(config)
        assert preset != "demo" or config.dataset in ("digits", "clusters")
        if run.candidate_for or run.best_of:
            assert config.split == ("validation" if run.candidate_for else "test"), run.name
            seeds[bool(run.candidate_for)].update(config.seeds)
        if run.candidate_for:
            length = config.get("steps") or config.epochs
            alike.setdefault(run.candidate_for, set()).add((length, config.batch_size, tuple(config.seeds)))
    assert all(len(found) == 1 for found in alike.values())
    assert not seeds[True] & seeds[False]
    assert {run.best_of for run, _ in made} == {run.candidate_for for run, _ in made}
