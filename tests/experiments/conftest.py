"""One finished run, shared by the tests that look at what a run leaves."""

import contextlib
import dataclasses
import io
from pathlib import Path

import pytest

from experiments.core import cli
from experiments.mnist_pruning.experiment import RECIPE
from tests.experiments.support import command


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run, its options, and what it printed."""

    workdir: Path
    options: tuple[str, ...]
    stdout: str


@pytest.fixture(scope="session")
def small_run(tmp_path_factory) -> Run:
    """A run of 20 epochs with checkpoints every 3, made by the command line, in this process, without interruption."""
    workdir = tmp_path_factory.mktemp("runs") / "uninterrupted"
    options = ("--config.epochs=20", "--config.checkpoint_every=3")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert cli.run(RECIPE, command(workdir, *options)[3:]) == 0
    return Run(workdir, options, printed.getvalue())
