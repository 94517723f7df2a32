"""The devices of a run as a mesh with named axes, and where each array lies on it.

    config.mesh.data     copies of the model
               .fsdp     parts of every large parameter, and of what the optimizer keeps for it
               .expert   parts of the experts, where a model has them: of parameters below a key
                         `experts`, along their leading axis

A batch is divided along all three. Their sizes multiply to the number of devices; at most one may
be -1, for what the others leave. Without `config.mesh` a run takes one device, or all of them where
there are several processes, each with a copy of the model.

A slice is what a fast interconnect joins: a TPU slice, the GPUs of a machine. Slices reach each other by the slower
network of the data centre, so `data` alone goes over several: what travels there is the sum of gradients once a step.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import ml_collections
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from experiments.core.config import require, require_one_of

AXES = ("data", "fsdp", "expert")
SMALLEST = 2**14  # entries: to gather a smaller array costs more than its memory is worth
EXPERTS = "experts"  # in the path of a parameter: its leading axis is that of the experts


def validate(config: ml_collections.ConfigDict, num_devices: int | None = None) -> None:
    """Checks `config.mesh` and the batch size for `num_devices` devices; None: those that JAX sees."""
    if "mesh" in config:
        for field, size in config.mesh.items():
            require_one_of("mesh", field, AXES)
            require(size == -1 or size > 0, f"mesh.{field}", size, "positive, or -1 for what is left")
        _sizes(config.mesh, num_devices or jax.device_count())
    microbatches = config.get("accumulate") or 1
    parts = batch_parts(config)
    of = f"a multiple of {parts * microbatches}, the {parts} devices of config.mesh times accumulate={microbatches}"
    require(config.batch_size % (parts * microbatches) == 0, "batch_size", config.batch_size, of)


def batch_parts(config: ml_collections.ConfigDict) -> int:
    """Into how many parts a batch is divided."""
    return math.prod(axis_sizes(config).values())


def make(config: ml_collections.ConfigDict, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """The mesh that a valid `config` asks for: of `devices`, which may be a compiler's alone, or those there are.

    Raises `UsageError` if the devices are in several slices, and `data` does not go over them.
    """
    sizes = axis_sizes(config)
    if devices is None:
        devices = jax.devices() if "mesh" in config or jax.process_count() > 1 else jax.local_devices()[:1]
    parts = _by_slice(devices)
    allowed = f"a multiple of the {len(parts)} slices, which no other axis goes over"
    require(sizes["data"] % len(parts) == 0, "mesh.data", sizes["data"], allowed)
    within = sizes | {"data": sizes["data"] // len(parts)}
    # Auto: the compiler chooses layouts inside the step, from those of its arguments and results.
    types = (AxisType.Auto,) * len(AXES)
    # An axis may take a part of a physical one, as 4 of 8 x 8 chips; `jax.make_mesh` has that for v5e alone.
    shape = tuple(within.values())
    count = math.prod(shape)
    meshes = [mesh_utils.create_device_mesh(shape, part[:count], allow_split_physical_axes=True) for part in parts]
    return Mesh(np.concatenate(meshes), AXES, axis_types=types)


def of_devices(
    config: ml_collections.ConfigDict, num_devices: int, num_processes: int = 1
) -> ml_collections.ConfigDict:
    """`config` with the sizes that its mesh has on so many devices and processes; `UsageError` if it has none."""
    if "mesh" not in config and num_processes == 1:
        return config
    config = config.copy_and_resolve_references()
    with config.unlocked():
        if "mesh" not in config:
            config.mesh = {"data": -1}
        config.mesh.update(_sizes(config.mesh, num_devices))
    return config


def axis_sizes(config: ml_collections.ConfigDict) -> dict[str, int]:
    """The size of every axis, in the order of AXES."""
    if "mesh" in config:
        sizes = config.mesh.to_dict()
        # Sizes without a -1 are what they are, on whatever devices; `validate` holds them against those there are.
        return _sizes(sizes, jax.device_count() if -1 in sizes.values() else math.prod(sizes.values()))
    return _sizes({"data": -1}, jax.device_count() if jax.process_count() > 1 else 1)


def _by_slice(devices: Sequence[jax.Device]) -> list[list[jax.Device]]:
    """The devices of each slice; of those that say nothing of it, as CPUs, all."""
    slices: dict[int, list[jax.Device]] = {}
    for device in devices:
        slices.setdefault(getattr(device, "slice_index", 0), []).append(device)
    return [slices[index] for index in sorted(slices)]


def _sizes(given: Mapping[str, int], num_devices: int) -> dict[str, int]:
    """The size of every axis; axes that are not `given` have size 1."""
    sizes = {axis: given.get(axis, 1) for axis in AXES}
    rest = [axis for axis, size in sizes.items() if size == -1]
    fixed = math.prod(size for size in sizes.values() if size != -1)
    fits = len(rest) <= 1 and (num_devices % fixed == 0 if rest else num_devices == fixed)
    allowed = f"sizes that multiply to the {num_devices} devices, at most one of them -1 for what is left"
    require(fits, "mesh", dict(given), allowed)
    return sizes | dict.fromkeys(rest, num_devices // fixed)


def replicated(mesh: Mesh) -> NamedSharding:
    """The same on every device."""
    return NamedSharding(mesh, PartitionSpec())


def batch_sharding(mesh: Mesh, axis: int = 0) -> NamedSharding:
    """Divided over the devices along `axis`, the one that counts examples."""
    return NamedSharding(mesh, PartitionSpec(*[None] * axis, AXES))


def by_example(activations: jax.Array) -> jax.Array:
    """Activations [B, ...] divided over the devices as the batch is, so that parameters move and not features.

    Without a mesh, or where the devices do not divide B, nothing is said.
    """
    sizes = dict(jax.sharding.get_abstract_mesh().shape)
    if not set(AXES) <= set(sizes) or activations.shape[0] % math.prod(sizes[axis] for axis in AXES):
        return activations
    return jax.lax.with_sharding_constraint(activations, PartitionSpec(AXES))


def state_shardings(mesh: Mesh, state: Any, leading: int = 0) -> Any:
    """Places the leaves of `state` (arrays or their shapes), after `leading` axes of seeds.

    An array is divided along its largest axis that `fsdp` divides, and is whole on every device if there is none or if
    it is small; an array of experts is divided by `expert` first. An optimizer's part for a parameter lies with it.
    """

    def sharding(path: Any, leaf: Any) -> NamedSharding:
        stacked = any(getattr(key, "key", getattr(key, "name", None)) == EXPERTS for key in path)
        spec = _partition(leaf.shape[leading:], dict(mesh.shape), stacked=stacked)
        return NamedSharding(mesh, PartitionSpec(*[None] * leading, *spec))

    return jax.tree_util.tree_map_with_path(sharding, state)


def _partition(shape: tuple[int, ...], sizes: Mapping[str, int], *, stacked: bool) -> list[str | None]:
    """The mesh axis of every axis of an array, without the trailing ones that have none."""
    axes: list[str | None] = [None] * len(shape)
    if stacked and sizes["expert"] > 1 and shape[0] % sizes["expert"] == 0:
        axes[0] = "expert"
    if sizes["fsdp"] > 1 and math.prod(shape) >= SMALLEST:
        divisible = [axis for axis, size in enumerate(shape) if axes[axis] is None and size % sizes["fsdp"] == 0]
        if divisible:
            axes[max(divisible, key=lambda axis: shape[axis])] = "fsdp"
    while axes and axes[-1] is None:
        axes.pop()
    return axes


def local_rows(mesh: Mesh, batch_size: int) -> np.ndarray:
    """The rows of a batch that lie on this process's devices, in order."""
    indices = batch_sharding(mesh).addressable_devices_indices_map((batch_size,)).values()
    parts = {index[0].indices(batch_size)[:2] for index in indices if index}
    return np.concatenate([np.arange(*part) for part in sorted(parts)])


def like(array: Any, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    """Describes an array of that shape and type in its place, on devices that need not be at hand."""
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)


def put(array: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """`array`, which every process has whole, on the devices of all of them."""
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])
