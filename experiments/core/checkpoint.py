"""Checkpoints by orbax: whole or absent, written by all processes, restored to any devices."""

from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp

from experiments.core.interval import Interval

State = Any  # a pytree of arrays


class Checkpoints:
    """The last two states of a run, by step, each with the interval since its last row.

    orbax writes into a temporary directory and renames it, so a kill during a save leaves the
    previous step intact. Saving is synchronous: the next chunk of steps donates the state's
    buffers, which a background save on a CPU would still be reading.
    """

    def __init__(self, directory: Path):
        options = ocp.CheckpointManagerOptions(
            max_to_keep=2, enable_async_checkpointing=False, cleanup_tmp_directories=True
        )
        self._manager = ocp.CheckpointManager(directory, options=options)

    def latest_step(self) -> int | None:
        """The step of the last state saved, if any."""
        return self._manager.latest_step()

    def save(self, step: int, state: State, interval: Interval) -> None:
        """Saves `state` unless the state of this step is there already."""
        if step != self.latest_step():
            parts = {"state": ocp.args.StandardSave(state), "interval": ocp.args.JsonSave(interval.to_json())}
            self._manager.save(step, args=ocp.args.Composite(**parts))

    def restore(self, step: int, like: State) -> tuple[State, Interval]:
        """What was saved at `step`, with the shapes, types and shardings of `like` (arrays, or shapes).

        The devices may be others, and fewer or more, than those that saved it.
        """
        parts = {"state": ocp.args.StandardRestore(like), "interval": ocp.args.JsonRestore()}
        restored = self._manager.restore(step, args=ocp.args.Composite(**parts))
        return restored["state"], Interval.from_json(restored["interval"])

    def close(self) -> None:
        """Ends orbax's threads."""
        self._manager.close()
