"""Checkpoints by orbax: whole or absent, written by all processes, verified before use, restored to any devices.

Each has the sums of its files (`checksums.py`). One that is damaged is never restored: the newest that is intact
takes its place, and it is set aside in the workdir, for training comes by its step once more.
"""

import contextlib
import dataclasses
import errno
import functools
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from experiments.core import config as config_lib
from experiments.core.errors import UsageError, first_line, is_full
from experiments.core.record import checksums
from experiments.core.record.files import files_below, is_remote
from experiments.core.training.processes import from_first
from experiments.core.training.stretch import Stretch

State = Any  # a pytree of arrays
Config = dict[str, Any]  # as JSON has it

_STATE, _STRETCH = "state", "interval"  # parts of a checkpoint, by the names they have always had
_ROWS, _CONFIG = "rows_sha256", "config"  # beside the stretch
_OF_ORBAX = ("Event loop is closed", "Encountered error while reading array index")
_UNFIT = (ValueError, KeyError, TypeError, FileNotFoundError)  # what orbax raises where it does not find what it should


@dataclasses.dataclass(frozen=True)
class Restored:
    """What a checkpoint holds.

    Attributes:
      step: that it is of.
      state: as it was after that step.
      stretch: since the last row.
      rows_sha256: of the metrics file up to then.
      damaged: newer checkpoints, by step, with what is wrong with them.
      verified: whether it has sums, which are right.
    """

    step: int
    state: State
    stretch: Stretch
    rows_sha256: str
    damaged: dict[int, str]
    verified: bool


class Checkpoints:
    """The last two states of a run, by step, each with the stretch since its last row.

    orbax writes into a temporary directory and renames it, so a kill during a save leaves the
    previous step intact. Saving is synchronous: the next chunk of steps donates the state's
    buffers, which a background save on a CPU would still be reading.
    """

    def __init__(self, directory: Path, config: Config | None = None):
        """To be made when no checkpoint in `directory` is damaged any more; `config` is kept in each."""
        options = ocp.CheckpointManagerOptions(
            max_to_keep=2,
            enable_async_checkpointing=False,
            cleanup_tmp_directories=True,
            # Of an older checkpoint that is damaged the name is enough, to delete it when its turn comes.
            lightweight_initialize=True,
        )
        self._directory, self._config = directory, config
        self._manager = ocp.CheckpointManager(directory, options=options)

    def save(self, step: int, state: State, stretch: Stretch, rows_sha256: str) -> None:
        """Saves `state` unless the state of this step is there already; it counts once its sums are written."""
        if step == self._manager.latest_step():
            return
        beside = stretch.to_json() | {_ROWS: rows_sha256, _CONFIG: self._config}
        parts = {_STATE: ocp.args.StandardSave(state), _STRETCH: ocp.args.JsonSave(beside)}
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._directory))
        with _silent(lambda error: full if is_full(error) else None):
            saved = self._manager.save(step, args=ocp.args.Composite(**parts))
        if not saved:
            raise RuntimeError(f"step {step} was not saved, after {self._manager.latest_step()}")
        if jax.process_index() == 0:
            checksums.write(self._directory / str(step))

    def close(self) -> None:
        """Ends orbax's threads."""
        self._manager.close()


@contextlib.contextmanager
def _silent(instead: Callable[[Exception], Exception | None]) -> Iterator[None]:
    """Within it an error of orbax is what there is `instead`, as of a full disk, and that is all that is told of it.

    Each of orbax's threads would report it, some of them after the first has made the call fail: by logging, or to an
    event loop that has ended. So what is silent within stays so if it comes to that.
    """
    hook = sys.unraisablehook

    def hook_of_others(unraisable: Any) -> None:
        if not any(words in str(unraisable.exc_value) for words in _OF_ORBAX):
            hook(unraisable)

    logging.disable(logging.CRITICAL)
    sys.unraisablehook = hook_of_others
    is_silent = False
    try:
        yield
    except Exception as error:
        other = instead(error)
        if other is None:
            raise
        is_silent = True
        raise other from error
    finally:
        if not is_silent:
            logging.disable(logging.NOTSET)
            sys.unraisablehook = hook


def restore(directory: Path, like: State, config: Config | None = None) -> Restored | None:
    """The newest checkpoint in `directory` that is intact; None if there is none at all. Nothing is changed.

    The devices may be others, and fewer or more, than those that saved it. A first checkpoint without
    sums, which are written last, counts as intact if it can be read.

    Args:
      directory: of the checkpoints.
      like: the shapes, types and shardings of the state (arrays, or shapes).
      config: of the run, which a checkpoint must be of; None: of any.

    Raises:
      UsageError: there are some, and none of them is intact; or the newest that is, is of another run.
    """
    unreadable: dict[int, str] = {}
    while True:
        found = from_first(lambda: _newest_intact(directory, unreadable))
        if found is None:
            return None
        step, verified, damaged = found
        # Of several processes one alone may fail to read its part, with the others waiting for it.
        if verified or jax.process_count() > 1:
            with _silent(functools.partial(_unfit, directory / str(step))):
                state, beside = _read(directory / str(step), like, config)
            break
        try:
            state, beside = _read(directory / str(step), like, config)
            break
        except _UNFIT as error:
            unreadable[step] = f"it cannot be read: {first_line(error)}"
    return Restored(
        step,
        state,
        Stretch.from_json(beside),
        beside[_ROWS],
        {int(step): reason for step, reason in damaged.items()},
        verified,
    )


def set_aside(directory: Path, step: int) -> Path:
    """Moves the checkpoint of `step` out of `directory` and beside it; returns where it is now."""
    # Not below `directory`, in which orbax deletes what has no place there.
    number, target = 1, directory.parent / f"damaged-checkpoint-{step}"
    while target.exists():
        number += 1
        target = directory.parent / f"damaged-checkpoint-{step}-{number}"
    return (directory / str(step)).rename(target)


def _newest_intact(directory: Path, unreadable: dict[int, str]) -> tuple[int, bool, dict[int, str]] | None:
    """Its step, whether it has sums, and what is wrong with those after it; see `restore`."""
    if not directory.exists():
        return None
    found = {int(path.name): set(files_below(path)) for path in directory.iterdir() if path.name.isdecimal()}
    if is_remote(directory):
        # Saved to the end, as far as orbax can tell, which deletes the others; or once verified to be.
        marks = {ocp.path.atomicity.COMMIT_SUCCESS_FILE, checksums.NAME}
        found = {step: files for step, files in found.items() if marks & files}
    steps = sorted(found, reverse=True)
    summed = [step for step in steps if checksums.NAME in found[step]]
    damaged: dict[int, str] = {}
    for step in steps:
        if step in unreadable:
            damaged[step] = unreadable[step]
            continue
        # Once sums are written, one that has none was not saved to the end, or has lost them.
        if step not in summed and not any(other < step for other in summed):
            return step, False, damaged
        reason = checksums.damage(directory / str(step))
        if reason is None:
            return step, True, damaged
        damaged[step] = reason
    if damaged:
        listed = "; ".join(f"{step}: {reason}" for step, reason in damaged.items())
        raise UsageError(
            f"no checkpoint in {directory} is intact ({listed}): put back a copy of one, or train in another "
            "--workdir; nothing has been changed"
        )
    return None


def _unfit(path: Path, error: Exception) -> UsageError | None:
    """Turns what orbax says of an intact checkpoint into a mistake of whoever put it there."""
    if not isinstance(error, _UNFIT):
        return None
    return UsageError(f"{path} is no checkpoint of this run: {first_line(error)}")


def _read(path: Path, like: State, config: Config | None) -> tuple[State, dict[str, Any]]:
    """The state, and what is beside it, which says first whether the state is of this run."""

    def read(**part: ocp.args.CheckpointArgs) -> Any:
        with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
            (found,) = checkpointer.restore(path, args=ocp.args.Composite(**part)).values()
        return found

    beside = read(**{_STRETCH: ocp.args.JsonRestore()})
    if lost := {_ROWS, _CONFIG} - beside.keys():
        raise UsageError(
            f"{path} is of an earlier version of this code, which kept no {' and no '.join(sorted(lost))}: "
            "train anew in another --workdir"
        )
    saved = beside[_CONFIG]
    if saved and config and (different := config_lib.differences_of_runs(saved, config)):
        raise UsageError(f"{path} is the checkpoint of a run with another config: {'; '.join(different)}")
    return read(**{_STATE: ocp.args.StandardRestore(like)}), beside
