"""The mesh of a config, and where parameters and batches lie on it."""

import dataclasses

import jax
import ml_collections
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from experiments.core.errors import UsageError
from experiments.core.training import mesh as mesh_lib


def config_of(batch_size=64, accumulate=1, **sizes):
    return ml_collections.ConfigDict({"mesh": sizes, "batch_size": batch_size, "accumulate": accumulate})


def mesh_of(**sizes):
    config = config_of(**sizes)
    mesh_lib.validate(config)
    return mesh_lib.make(config)


@pytest.mark.parametrize(
    ("given", "shape"),
    [
        ({"data": -1, "fsdp": 4}, (2, 4, 1)),
        ({"data": 2, "fsdp": 2, "expert": 2}, (2, 2, 2)),
        ({"data": 8, "fsdp": -1}, (8, 1, 1)),
    ],
)
def test_minus_one_is_what_is_left(given, shape):
    mesh = mesh_of(**given)
    assert tuple(mesh.shape.values()) == shape
    assert tuple(mesh.shape) == ("data", "fsdp", "expert")


def test_several_processes_use_all_devices():
    config = ml_collections.ConfigDict({"batch_size": 12}).lock()
    assert mesh_lib.make(config).size == 1
    assert mesh_lib.of_devices(config, 1) is config
    with pytest.raises(UsageError, match=r"config\.batch_size=12 .* multiple of 8"):
        mesh_lib.validate(mesh_lib.of_devices(config, 8, 2))
    assert "mesh" not in config
    assert mesh_lib.of_devices(config_of(data=2, fsdp=4), 8, 2).mesh.to_dict() == {"data": 2, "fsdp": 4, "expert": 1}


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"data": 3}, r"config\.mesh=\{'data': 3\} .* multiply to the 8 devices"),
        ({"data": -1, "fsdp": -1}, r"config\.mesh=.* at most one of them -1"),
        ({"data": 0}, r"config\.mesh\.data=0 .* must be positive, or -1"),
        ({"tensor": 8}, r"config\.mesh='tensor' .* one of data, fsdp, expert"),
        ({"data": 4, "fsdp": 2, "batch_size": 12}, r"config\.batch_size=12 .* multiple of 8"),
        ({"data": 8, "batch_size": 24, "accumulate": 2}, r"config\.batch_size=24 .* multiple of 16"),
    ],
)
def test_sizes_that_do_not_fit_are_named(sizes, message):
    with pytest.raises(UsageError, match=message):
        mesh_lib.validate(config_of(**sizes))


def test_fsdp_shards_largest_divisible_axis():
    mesh = mesh_of(data=1, fsdp=4, expert=2)
    state = {
        "kernel": jax.ShapeDtypeStruct((3, 130, 512), np.float32),
        "tall": jax.ShapeDtypeStruct((1024, 512), np.float32),
        "odd": jax.ShapeDtypeStruct((1023, 512), np.float32),
        "indivisible": jax.ShapeDtypeStruct((999, 333), np.float32),
        "bias": jax.ShapeDtypeStruct((512,), np.float32),
        "experts": {"kernel": jax.ShapeDtypeStruct((4, 128, 256), np.float32)},
        "count": jax.ShapeDtypeStruct((), np.int32),
    }
    shardings = mesh_lib.state_shardings(mesh, state)
    specs = jax.tree.map(lambda sharding: sharding.spec, shardings)
    assert specs == {
        "kernel": PartitionSpec(None, None, "fsdp"),
        "tall": PartitionSpec("fsdp"),
        "odd": PartitionSpec(None, "fsdp"),
        "indivisible": PartitionSpec(),
        "bias": PartitionSpec(),
        "experts": {"kernel": PartitionSpec("expert", None, "fsdp")},
        "count": PartitionSpec(),
    }
    seeds = {"w": jax.ShapeDtypeStruct((10, 128, 128), np.float32)}
    assert mesh_lib.state_shardings(mesh, seeds, leading=1)["w"].spec == PartitionSpec(None, "fsdp")


class InSlice:
    """A device that says of which slice it is, as TPUs and GPUs do."""

    def __init__(self, device, slice_index):
        self._device, self.slice_index = device, slice_index

    def __getattr__(self, name):
        return getattr(self._device, name)


@pytest.fixture
def two_slices():
    """Eight devices, which take turns in being of one slice and of the other."""
    return [InSlice(device, number % 2) for number, device in enumerate(jax.devices())]


def test_data_alone_goes_over_slices(two_slices):
    mesh = mesh_lib.make(config_of(data=4, expert=2), two_slices)
    found = np.vectorize(lambda device: device.slice_index)(mesh.devices)
    np.testing.assert_array_equal(found[:, 0], [[0, 0], [0, 0], [1, 1], [1, 1]])


def test_data_must_be_multiple_of_slices(two_slices):
    with pytest.raises(UsageError, match=r"config\.mesh\.data=1 .* a multiple of the 2 slices"):
        mesh_lib.make(config_of(data=1, fsdp=4, expert=2), two_slices)


@dataclasses.dataclass(frozen=True)
class Chip:
    """A TPU v6e, of a slice of 8 x 8 of them."""

    id: int
    process_index: int = 0
    platform: str = "tpu"
    device_kind: str = "TPU v6 lite"
    core_on_chip: int = 0

    @property
    def coords(self):
        return (self.id % 8, self.id // 8, 0)


@pytest.mark.parametrize("sizes", [{"data": 16, "expert": 4}, {"data": 4, "fsdp": 4, "expert": 4}, {"data": 64}])
def test_axis_may_take_part_of_a_slice_side(sizes):
    # `jax.make_mesh` refuses the first two.
    mesh = mesh_lib.make(config_of(**sizes), [Chip(number) for number in range(64)])
    assert mesh.shape == {"data": 1, "fsdp": 1, "expert": 1} | sizes
    assert {chip.id for chip in mesh.devices.flat} == set(range(64))
    # Those that exchange slots lie in a row.
    groups = mesh.devices.reshape(-1, mesh.shape["expert"])
    assert all(np.ptp([chip.id % 8 for chip in group]) < mesh.shape["expert"] for group in groups)
    assert all(len({chip.id // 8 for chip in group}) == 1 for group in groups)
