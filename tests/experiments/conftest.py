"""One finished run, shared by the tests that look at what a run leaves."""

import dataclasses
from pathlib import Path

import pytest

from tests.experiments.support import command, start


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run, its options, and what it printed."""

    workdir: Path
    options: tuple[str, ...]
    stdout: str


@pytest.fixture(scope="session")
def small_run(tmp_path_factory) -> Run:
    """A run of 20 epochs with checkpoints every 3, made by the command line without interruption."""
    workdir = tmp_path_factory.mktemp("runs") / "uninterrupted"
    options = ("--config.epochs=20", "--config.checkpoint_every=3")
    process = start(command(workdir, *options))
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    return Run(workdir, options, out)
