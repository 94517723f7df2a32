"""What to say of a step that does not fit: how much is missing, what is largest, which fields of the config help."""

from collections.abc import Sequence

import ml_collections

from experiments.core.training import mesh as mesh_lib
from scripts.aot.contents import Buffer
from scripts.aot.hardware import Slice


def lines(
    config: ml_collections.ConfigDict,
    slice_: Slice,
    state_bytes: float,
    needed: float,
    available: float,
    largest: Sequence[Buffer],
) -> list[str]:
    """For people.

    Args:
      config: of the run, of a valid mesh.
      slice_: that it does not fit on.
      state_bytes: of parameters and what the optimizer keeps for them, on a device.
      needed: bytes on a device.
      available: bytes that it has.
      largest: arrays of the program.
    """
    said = [
        f"it does not fit: a device of {slice_.type} has {available / 1e9:.1f} GB, the step needs "
        f"{needed / 1e9:.1f} GB, "
        f"{state_bytes / 1e9:.1f} GB of them for parameters and optimizer",
    ]
    said += [f"  {one.bytes / 1e9:6.2f} GB  {one.shape}  {one.source}".rstrip() for one in largest]
    return [*said, "what helps: " + "; ".join(changes(config, state_bytes, available))]


def changes(config: ml_collections.ConfigDict, state_bytes: float, available: float) -> list[str]:
    """Fields to change, those first that cost least."""
    found = []
    sizes = mesh_lib.axis_sizes(config)
    fits_not = state_bytes > 0.5 * available
    if "mesh" in config and sizes["data"] > 1:
        if config.get("moe") is not None and sizes["expert"] == 1:
            found.append("--config.mesh.expert=N, which divides the experts among N devices")
        by_fsdp = "--config.mesh.fsdp=N, which divides parameters and optimizer among N devices"
        found.insert(0 if fits_not else len(found), by_fsdp)
    model = config.get("model")
    if model is not None and model.get("remat") is False:
        found.append("--config.model.remat=True, which computes activations again instead of keeping them")
    if "accumulate" in config:
        twice = 2 * (config.accumulate or 1)
        found.append(f"--config.accumulate={twice}, which takes the batch in {twice} parts, one after the other")
    found.append(f"--config.batch_size below {config.batch_size}")
    found.append("a type with more devices")
    return found
