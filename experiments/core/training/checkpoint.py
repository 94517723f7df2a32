"""Checkpoints by orbax: whole or absent, written by all processes, verified before use, restored to any devices.

Each has one SHA-256 of all its files, written last. One without it was not saved to the end, one with another is
damaged: neither is restored, but the newest that is intact. (orbax has checksums of a part of its files alone.)
"""

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from etils import epath
from orbax.checkpoint import v1 as ocp

from experiments.core import config as config_lib
from experiments.core.errors import UsageError
from experiments.core.record.files import files_below, is_remote, write_atomically
from experiments.core.training.guard import from_first, is_first
from experiments.core.training.recorder import MetricsSinceRow

State = Any  # a pytree of arrays
Config = dict[str, Any]  # as JSON has it

CHECKSUM = "SHA256"  # a file beside those of orbax
_MARKS = {"commit_success.txt", CHECKSUM}  # the former is orbax's, in buckets
_STATE, _SINCE_ROW = "state", "since_row"  # parts of a checkpoint


def _context() -> ocp.Context:
    """Returns the context of a call to orbax, in which what lies beside the state is JSON."""
    registry = ocp.handlers.local_registry().add(ocp.handlers.JsonHandler, checkpointable_name=_SINCE_ROW)
    context = ocp.Context()
    context.checkpointables.registry = registry
    return context


class Checkpoints:
    """The last two states of a run, by step, each with the metrics since its last row.

    A kill during a save leaves the previous step intact. Saving is synchronous: the next steps donate the state's
    buffers, which a background save on a CPU would still be reading.
    """

    def __init__(self, directory: Path, config: Config | None = None, fingerprint: str = ""):
        """Keeps checkpoints in `directory`, each with `config` and the `fingerprint` of the data."""
        self._directory, self._config, self._fingerprint = directory, config, fingerprint
        self._newest: int | None = None
        self._damaged: list[tuple[int, str]] = []

    def restore(self, like: State) -> tuple[int, State, MetricsSinceRow] | None:
        """Restores the newest that is intact, on whatever devices: its step, a state `like` these arrays or shapes.

        None where there is none. Raises `UsageError` if all are damaged, or of a run with another config, or on other
        data. Nothing is changed.
        """
        self._newest, self._damaged = from_first(lambda: find(self._directory))
        if self._newest is None:
            return None
        path = self._directory / str(self._newest)
        beside = _read(path, _SINCE_ROW)
        saved, data = beside["config"], beside.get("data")  # which older checkpoints lack
        if saved and self._config and (different := config_lib.differences_of_runs(saved, self._config)):
            raise UsageError(f"{path} is the checkpoint of a run with another config: {'; '.join(different)}")
        if data and self._fingerprint not in ("", data):
            raise UsageError(f"{path} is the checkpoint of a run on the data {data}, and these are {self._fingerprint}")
        return self._newest, _read(path, _STATE, like), MetricsSinceRow.from_json(beside["since_row"])

    def clear(self) -> list[tuple[int, str, Path]]:
        """Sets those aside that `restore` has passed over, and removes what killed saves have left.

        Only the first process does so. It returns the steps of the former, what is wrong, and where they are now.
        """
        moved: list[tuple[int, str, Path]] = []
        if is_first():
            moved = [(step, reason, set_aside(self._directory, step)) for step, reason in self._damaged]
            _remove(self._directory, lambda name, saved: name not in saved and name.partition(".")[0].isdecimal())
        return moved

    def save(self, step: int, state: State, since_row: MetricsSinceRow) -> None:
        """Saves `state` unless the state of this step is there already; it counts once its checksum is written."""
        if step == self._newest:
            return
        path = self._directory / str(step)
        beside = {"since_row": since_row.to_json(), "config": self._config, "data": self._fingerprint}
        with _context():
            ocp.save_checkpointables(path, {_STATE: state, _SINCE_ROW: beside})
        self._newest = step
        if is_first():
            write_atomically(path / CHECKSUM, _checksum(path))
            _remove(self._directory, lambda name, saved: name in saved[:-2])


def find(directory: Path) -> tuple[int | None, list[tuple[int, str]]]:
    """The step of the newest checkpoint that is intact, or None; and newer ones, which are not, each with the reason.

    Raises `UsageError` if some have been saved to the end, and none of them is intact.
    """
    damaged: list[tuple[int, str]] = []
    saved = _saved(directory)
    for step in sorted(saved, reverse=True):
        path = directory / str(step)
        if not saved[step]:
            damaged.append((step, f"it has no {CHECKSUM}: it was not saved to the end"))
        elif (path / CHECKSUM).read_bytes() == _checksum(path).encode():
            return step, damaged
        else:
            damaged.append((step, "its files are not those that were saved"))
    if any(saved.values()):
        listed = "; ".join(f"{step}: {reason}" for step, reason in damaged)
        raise UsageError(
            f"no checkpoint in {directory} is intact ({listed}): put back a copy of one, or train in another "
            "--workdir; nothing has been changed"
        )
    return None, damaged


def set_aside(directory: Path, step: int) -> Path:
    """Moves the checkpoint of `step` out of `directory` and beside it; returns where it is now."""
    # Not below `directory`, where it would be taken for a checkpoint again.
    number, target = 1, directory.parent / f"damaged-checkpoint-{step}"
    while target.exists():
        number += 1
        target = directory.parent / f"damaged-checkpoint-{step}-{number}"
    return (directory / str(step)).rename(target)


def _saved(directory: Path) -> dict[int, bool]:
    """Returns whether each checkpoint, by step, has been saved to the end."""
    if not directory.exists():
        return {}
    files = {int(path.name): set(files_below(path)) for path in directory.iterdir() if path.name.isdecimal()}
    if is_remote(directory):  # where directories are not renamed: orbax deletes those that it has not marked
        files = {step: names for step, names in files.items() if _MARKS & names}
    return {step: CHECKSUM in names for step, names in files.items()}


def _remove(directory: Path, condition: Callable[[str, list[str]], bool]) -> None:
    """Removes what is in `directory` under names that meet a condition; it is told of the steps saved, in order."""
    saved = [str(step) for step in sorted(_saved(directory))]
    for path in directory.iterdir() if directory.exists() else ():
        if condition(path.name, saved):
            epath.Path(path).rmtree()


def _checksum(path: Path) -> str:
    """The SHA-256 of the names of all files below `path` and of their contents."""

    def of(name: str) -> str:
        with (path / name).open("rb") as file:
            return f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {name}\n"

    with ThreadPoolExecutor(8) as pool:
        listed = "".join(pool.map(of, (name for name in files_below(path) if name != CHECKSUM)))
    return hashlib.sha256(listed.encode()).hexdigest()


def _read(path: Path, part: str, like: State = None) -> Any:
    with _context():
        return ocp.load_checkpointables(path, {part: like})[part]
