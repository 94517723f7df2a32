"""Types of slices by the names that users know."""

import pytest

from experiments.core.errors import UsageError
from scripts.aot import hardware


@pytest.mark.parametrize(
    ("type_", "devices", "topology", "processes"),
    [
        ("v5litepod-16", 16, "v5e:4x4", 4),
        ("v5litepod-8", 8, "v5e:2x4", 1),
        ("v5litepod-256", 256, "v5e:16x16", 64),
        ("v6e-256", 256, "v6e:16x16", 64),
        ("v6e-8", 8, "v6e:2x4", 1),
        ("v4-8", 4, "v4:2x2x1", 1),
        ("v5p-64", 32, "v5p:2x4x4", 8),
        ("v5p-16", 8, "v5p:2x2x2", 2),
        ("tpu7x-4", 8, "tpu7x:2x2x1", 1),
        ("h200-8", 8, "1x1x8", 1),
        ("v5e", 4, "v5e:2x2", 1),
    ],
)
def test_slices(type_, devices, topology, processes):
    found = hardware.parse(type_)
    assert (found.count, found.topology, found.processes) == (devices, topology, processes)


def test_several_slices():
    one, two = hardware.parse("v5litepod-16"), hardware.parse("2xv5litepod-16")
    assert (two.type, two.slices, two.count, two.processes) == ("2xv5litepod-16", 2, 32, 8)
    assert (two.type_of_one, two.topology) == (one.type, one.topology)
    assert one.type_of_one == "v5litepod-16"
    assert hardware.parse("3xv5e").type == "3xv5litepod-4"


@pytest.mark.parametrize(
    "type_", ["v5litepod-17", "v5p-7", "h200-16", "a100-8", "", "v6e-", "v6e-08", "1xv5e", "2x2xv5e", "2xh200", "0xv5e"]
)
def test_others_are_refused_in_a_line_that_names_those_known(type_):
    with pytest.raises(UsageError, match=r"--type=.* is not allowed: it must be one of v4, .*v5litepod-\{1,4,8,16"):
        hardware.parse(type_)


def test_rates_are_of_one_device():
    """The data sheets': operations a byte of memory, 240 of a v5e, 560 of a v6e."""
    assert hardware.V5E.flops / hardware.V5E.memory_bandwidth == pytest.approx(240, rel=0.01)
    assert hardware.V6E.flops / hardware.V6E.memory_bandwidth == pytest.approx(560, rel=0.01)
    for device in (hardware.V4, hardware.V5E, hardware.V5P, hardware.V6E, hardware.TPU7X, hardware.H200):
        assert device.source.startswith("https://")
        assert device.interconnect < device.memory_bandwidth < device.memory * 1000
