"""One finished run, shared by the tests that look at what a run leaves."""

import dataclasses
import os
from pathlib import Path

import pytest

from tests.experiments.support import command, start


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run, its options, what it printed, and the modules that it imported."""

    workdir: Path
    options: tuple[str, ...]
    stdout: str
    imported: frozenset[str]


@pytest.fixture(scope="session")
def small_run(tmp_path_factory) -> Run:
    """A run of 20 epochs with checkpoints every 3, made by the command line without interruption."""
    workdir = tmp_path_factory.mktemp("runs") / "uninterrupted"
    options = ("--config.epochs=20", "--config.checkpoint_every=3")
    process = start(command(workdir, *options), env=os.environ | {"PYTHONPROFILEIMPORTTIME": "1"})
    out, err = process.communicate(timeout=600)
    imports = [line.removeprefix("import time:").split("|") for line in err.splitlines()]
    assert all(len(fields) == 3 for fields in imports), err  # and nothing else
    assert process.returncode == 0
    return Run(workdir, options, out, frozenset(fields[2].strip() for fields in imports))
