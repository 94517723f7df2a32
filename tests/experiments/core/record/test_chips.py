"""The table of chips, and types of slices by the names that users know."""

import pytest

from experiments.core.errors import UsageError
from experiments.core.record import chips


@pytest.mark.parametrize(
    ("type_", "devices", "topology", "processes"),
    [
        ("v5litepod-16", 16, "v5e:4x4", 4),
        ("v5litepod-8", 8, "v5e:2x4", 1),
        ("v6e-256", 256, "v6e:16x16", 64),
        ("v4-8", 4, "v4:2x2x1", 1),
        ("v5p-64", 32, "v5p:2x4x4", 8),
        ("v5p-16", 8, "v5p:2x2x2", 2),
        ("tpu7x-4", 8, "tpu7x:2x2x1", 1),
        ("h200-8", 8, "1x1x8", 1),
        ("v5e", 4, "v5e:2x2", 1),
    ],
)
def test_slices(type_, devices, topology, processes):
    found = chips.parse(type_)
    assert (found.count, found.topology, found.processes) == (devices, topology, processes)


def test_several_slices():
    one, two = chips.parse("v5litepod-16"), chips.parse("2xv5litepod-16")
    assert (two.type, two.slices, two.count, two.processes) == ("2xv5litepod-16", 2, 32, 8)
    assert (two.topology, two.chip) == (one.topology, one.chip)
    assert chips.parse("3xv5e").type == "3xv5litepod-4"


@pytest.mark.parametrize(
    "type_", ["v5litepod-17", "v5p-7", "h200-16", "a100-8", "", "v6e-", "v6e-08", "1xv5e", "2x2xv5e", "2xh200", "0xv5e"]
)
def test_unknown_chip_types_are_refused(type_):
    with pytest.raises(UsageError, match=r"--type=.* is not allowed: it must be one of v4, .*v5litepod-\{1,4,8,16"):
        chips.parse(type_)


@pytest.mark.parametrize(
    ("type_", "version", "cores"), [("v4", "v4", 2), ("v5e", "v5e", 1), ("v5p", "v5p", 2), ("v6e", "v6e", 1)]
)
def test_facts_are_those_of_jaxs_own_table(type_, version, cores):
    """JAX gives those of a core, and rounds."""
    tpu = pytest.importorskip("jax.experimental.pallas.tpu")
    if not hasattr(tpu, "get_tpu_info_for_chip"):
        pytest.skip("this JAX has no table")
    known, chip = tpu.get_tpu_info_for_chip(tpu.ChipVersion(version), cores), chips.parse(type_).chip
    assert chip.flops == pytest.approx(cores * known.bf16_ops_per_second, rel=0.01)
    assert chip.memory == pytest.approx(cores * known.hbm_capacity_bytes, rel=0.05)


@pytest.mark.parametrize(
    ("kind", "name"), [("NVIDIA H200 141GB HBM3e", "H200"), ("TPU7x", "TPU7x"), ("TPU v5", "TPU v5p"), ("cpu", None)]
)
def test_the_chip_by_what_jax_calls_it(kind, name):
    assert getattr(chips.of_kind(kind), "name", None) == name
