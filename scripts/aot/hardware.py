"""Accelerators by the names that users know, with what their makers publish of them.

A *device* is what JAX calls one: a chip, but for TPU7x, whose chips are two devices.

    bf16 FLOP/s    dense, without sparsity
    interconnect   bytes that a device can send to the others of its slice or machine in a second, over all its links
                   together: TPU's interchip interconnect, NVLink. Makers who give both directions in one are halved.

Sources: Google Cloud, "TPU v5e", "TPU v6e", "TPU v5p", "TPU v4", "TPU7x (Ironwood)"
(https://docs.cloud.google.com/tpu/docs/v5e and so on); NVIDIA, "H200 Tensor Core GPU" data sheet.
Compared with these pages in November 2026.
"""

import dataclasses
import re

from experiments.core.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Device:
    """What one device has.

    Attributes:
      name: of the chip.
      platform: of XLA.
      flops: bfloat16 operations a second.
      memory: bytes.
      memory_bandwidth: bytes a second, from and to it.
      interconnect: bytes a second that it can send.
      source: of the numbers.
    """

    name: str
    platform: str
    flops: float
    memory: float
    memory_bandwidth: float
    interconnect: float
    source: str


@dataclasses.dataclass(frozen=True)
class Slice:
    """Devices that compute together; or several such slices, which the network of the data centre joins.

    Attributes:
      type: as users ask for it, `2xv5litepod-16` of two slices.
      device: each of them.
      count: of devices, in all slices.
      topology: of a slice, as the compiler names it.
      processes: hosts, each with its process, of all slices.
      slices: how many.
    """

    type: str
    device: Device
    count: int
    topology: str
    processes: int
    slices: int = 1

    @property
    def type_of_one(self) -> str:
        """The type of each slice."""
        return self.type.removeprefix(f"{self.slices}x")


_GIB = 2.0**30
_GOOGLE = "https://docs.cloud.google.com/tpu/docs/"
V4 = Device("TPU v4", "tpu", 275e12, 32 * _GIB, 1228e9, 300e9, _GOOGLE + "v4")
V5E = Device("TPU v5e", "tpu", 197e12, 16 * _GIB, 819e9, 200e9, _GOOGLE + "v5e")
V5P = Device("TPU v5p", "tpu", 459e12, 95 * _GIB, 2765e9, 600e9, _GOOGLE + "v5p")
# Of editions of these pages that differ by a few percent in bytes a second, the lower number of links, the more precise
# one of memory: v5e 800e9 or 819e9; v6e 1600e9 or 1640e9, and 400e9 or 448e9 for its links.
V6E = Device("TPU v6e", "tpu", 918e12, 32 * _GIB, 1640e9, 400e9, _GOOGLE + "v6e")
# Half a chip: 2307e12, 192 GB, 7380e9 and 1200e9 of a whole one, of which the interconnect counts both directions.
TPU7X = Device("TPU7x", "tpu", 1153.5e12, 96 * _GIB, 3690e9, 300e9, _GOOGLE + "tpu7x")
# 900e9 of NVLink in both directions; 141e9 bytes.
H200 = Device("H200", "cuda", 989e12, 141e9, 4800e9, 450e9, "https://www.nvidia.com/en-us/data-center/h200/")

_FLAT = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
_DEEP = {4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4", 128: "4x4x8", 256: "4x8x8", 512: "8x8x8"}


@dataclasses.dataclass(frozen=True)
class _Family:
    """Types whose names begin alike: a number follows, `unit` of which make a chip; chips make `devices` each."""

    device: Device
    compiler: str
    topologies: dict[int, str]  # by chips
    unit: int = 1
    devices: int = 1


_FAMILIES = {
    "v4-": _Family(V4, "v4", _DEEP, unit=2),
    "v5litepod-": _Family(V5E, "v5e", _FLAT),
    "v5p-": _Family(V5P, "v5p", _DEEP, unit=2),
    "v6e-": _Family(V6E, "v6e", _FLAT),
    "tpu7x-": _Family(TPU7X, "tpu7x", _DEEP, devices=2),
}
_GPUS = {"h200-": H200}
_GPUS_IN_ONE_MACHINE = (1, 2, 4, 8)
_CHIPS_OF_A_HOST = 4
_SHORT = {"v4": "v4-8", "v5e": "v5litepod-4", "v5p": "v5p-8", "v6e": "v6e-4", "tpu7x": "tpu7x-4", "h200": "h200-1"}


def parse(type_: str) -> Slice:
    """The slice of a type, as `v5litepod-16`, `v5p-32` or `h200-8`; a chip alone, as `v5e`, stands for the smallest.

    `2xv5litepod-16` is two slices of TPUs.

    Raises:
      UsageError: it is not one of those known here.
    """
    if several := re.fullmatch(r"([1-9]\d*)x(.+)", type_):
        slices, one = int(several[1]), parse(several[2])
        if slices > 1 and one.slices == 1 and one.device.platform == "tpu":
            name, count, processes = f"{slices}x{one.type}", slices * one.count, slices * one.processes
            return dataclasses.replace(one, type=name, count=count, processes=processes, slices=slices)
    name = _SHORT.get(type_, type_)
    start, _, number = name.rpartition("-")
    start, count = f"{start}-", int(number) if re.fullmatch(r"[1-9]\d*", number) else 0
    if start in _GPUS and count in _GPUS_IN_ONE_MACHINE:
        return Slice(name, _GPUS[start], count, f"1x1x{count}", 1)
    family = _FAMILIES.get(start)
    if family is None or count % family.unit or count // family.unit not in family.topologies:
        raise UsageError(f"--type={type_} is not allowed: it must be one of {', '.join(types())}")
    chips = count // family.unit
    topology = f"{family.compiler}:{family.topologies[chips]}"
    # Up to 8 chips of a flat family have one host.
    processes = 1 if chips <= (8 if family.topologies is _FLAT else _CHIPS_OF_A_HOST) else chips // _CHIPS_OF_A_HOST
    return Slice(name, family.device, chips * family.devices, topology, processes)


def types() -> list[str]:
    """All that are known here."""
    found = [f"{start}{{{','.join(str(n * f.unit) for n in f.topologies)}}}" for start, f in _FAMILIES.items()]
    return [*_SHORT, *found, *(f"{start}{{{','.join(map(str, _GPUS_IN_ONE_MACHINE))}}}" for start in _GPUS)]
