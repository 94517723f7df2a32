"""Checkpoints by orbax: whole or absent, and restored to where the template's arrays lie."""

from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp

State = Any  # a pytree of arrays


class Checkpoints:
    """The last two states of a run, by step.

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

    def save(self, step: int, state: State) -> None:
        """Saves `state` unless the state of this step is there already."""
        if step != self.latest_step():
            self._manager.save(step, args=ocp.args.StandardSave(state))

    def restore(self, step: int, like: State) -> State:
        """The state at `step`, with the shapes, types and shardings of `like`."""
        return self._manager.restore(step, args=ocp.args.StandardRestore(like))

    def close(self) -> None:
        """Ends orbax's threads."""
        self._manager.close()
