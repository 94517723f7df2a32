"""The directory of one run, on a local disk or in a bucket (`gs://`), and the rule that it belongs to one config.

config.json         the config, all overrides applied
environment.json    the experiment; code, packages, settings, machine, command, data of the first launch and later ones
metrics.jsonl       one row per epoch, or per interval of steps
checkpoints/        the last states, by orbax, each with the config
params.npz          with config.export_params, the parameters at the end
examples.npz        with config.export_examples, what is said of each evaluated example at the end
summary.json        written last: its presence means that the run is done
damaged-checkpoint-STEP/   one that is not as it was saved, and was passed over
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TextIO

import ml_collections

from experiments.core import config as config_lib
from experiments.core.errors import DamagedError, UsageError
from experiments.core.record import metrics
from experiments.core.record.environment import describe
from experiments.core.record.files import absolute, is_remote, lock, reaching, read_object, write_json

LOCK = ".lock"  # the file that keeps other processes out
_AGAIN = "remove it, and the same command makes it again from the last checkpoint and metrics.jsonl"


class Workdir:
    """Paths in a run's directory, and the little that is read and written whole."""

    def __init__(self, path: str | Path):
        self.path = absolute(path)
        self.config = self.path / "config.json"
        self.environment = self.path / "environment.json"
        self.metrics = self.path / "metrics.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.params = self.path / "params.npz"
        self.examples = self.path / "examples.npz"
        self.summary = self.path / "summary.json"
        self.tensorboard = self.path / "tensorboard"

    def check(self, config: ml_collections.ConfigDict, data: str = "") -> None:
        """Checks that a run of `config` can begin or go on in the directory, on whatever devices.

        Raises `UsageError` if it holds the run of another config, on other data (where their fingerprint is given and
        recorded) or damaged files, or is a bucket that cannot be read.
        """
        with reaching(self.path):
            if not self.config.exists():
                # config.json is written first, so whatever lies here without one is not a run of ours.
                if self.metrics.exists() or self.checkpoints.exists():
                    raise UsageError(f"--workdir={self.path} holds a run without its config.json")
                return
            saved = read_object(self.config, metrics.ADVICE)
            if different := config_lib.differences_of_runs(saved, config_lib.to_json(config)):
                raise UsageError(f"--workdir={self.path} holds a run with another config: {'; '.join(different)}")
            first = self._launches() or {}
            recorded = [launch["data"] for launch in (first, *first.get("resumed", ())) if launch.get("data")]
            if data and recorded and recorded[-1] != data:
                raise UsageError(
                    f"--workdir={self.path} holds a run on other data, {recorded[-1]}, and these are {data}: put back "
                    "the former, or train in another --workdir"
                )
            if self.is_done():
                metrics.require_sha256(self.metrics, self.read_summary().get("metrics_sha256"))

    def is_done(self) -> bool:
        """Returns whether the run has come to its end; raises `DamagedError` if its summary is none."""
        return self.summary.exists() and bool(self.read_summary())

    def read_summary(self) -> dict[str, Any]:
        """Reads the summary of a run that is done; raises `DamagedError` if the file holds something else."""
        summary = read_object(self.summary, _AGAIN)
        if summary.get("state") != "done":
            raise DamagedError(self.summary, "it is of no run that is done", _AGAIN)
        return summary

    def _launches(self) -> dict[str, Any] | None:
        """The records of all launches; None before the first."""
        return read_object(self.environment, metrics.ADVICE) if self.environment.exists() else None

    @contextmanager
    def claim(self, config: ml_collections.ConfigDict, data: str = "") -> Iterator[None]:
        """Makes the directory this config's, if it is not yet, and keeps other processes out (a bucket has no locks).

        Raises `UsageError` if it holds another run, as `check` says, or one still under way.
        """
        with nullcontext() if is_remote(self.path) else self._lock():
            self.check(config, data)
            with reaching(self.path):
                if not self.config.exists():
                    write_json(self.config, config_lib.to_json(config))
            yield

    def _lock(self) -> TextIO:
        try:
            return lock(self.path / LOCK, wait=False)
        except BlockingIOError as error:
            raise UsageError(f"--workdir={self.path} is in use by another process") from error
        except OSError as error:
            raise UsageError(f"--workdir={self.path}: {error.strerror}") from error

    def record_launch(self, command: Sequence[str], experiment: str, data: str = "") -> dict[str, Any]:
        """Adds this launch to those recorded, the first at the top, resumptions below it; returns its record."""
        now, first = describe(command) | {"data": data or None}, self._launches()
        earlier = first | {"resumed": [*first.get("resumed", ()), now]} if first else None
        write_json(self.environment, earlier or {"experiment": experiment} | now | {"resumed": []})
        return now
