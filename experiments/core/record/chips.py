"""The one table of accelerators: rates and memory that their makers publish, and the types in which they are rented.

The trainer's utilisation (MFU) is measured against `flops`, `scripts.compile` says what fits in `memory`, and
`scripts.launch` asks how many devices a type has. A *device* is what JAX calls one: a chip, but half a chip of TPU v2,
v3 and 7x.

Sources: Google Cloud, https://docs.cloud.google.com/tpu/docs/v5e and likewise v4, v5p, v6e, tpu7x; NVIDIA's data
sheets. Compared with them in November 2026; where editions of a page differ by a few percent, the more precise number.
"""

import dataclasses
import re

from experiments.core.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Chip:
    """One device of a kind of accelerator."""

    name: str  # the maker's
    kinds: tuple[str, ...]  # parts of JAX's `device_kind`, in lower case, any of which tells it
    flops: float  # dense bfloat16 operations a second (a V100: float16)
    memory: float = 0.0  # bytes; 0 where editions of the chip differ, or nothing is compiled for it


@dataclasses.dataclass(frozen=True)
class Slice:
    """Devices that compute together; or several such slices, which the network of the data centre joins."""

    type: str  # as users ask for it, `2xv5litepod-16` of two slices
    chip: Chip
    platform: str  # XLA's, tpu or cuda
    count: int  # devices in all slices
    topology: str  # of one slice, as the compiler names it
    processes: int  # of all slices, one for each host
    slices: int = 1


_GIB = 2.0**30
_H200 = Chip("H200", ("h200",), 989e12, 141e9)
_V4 = Chip("TPU v4", ("tpu v4",), 275e12, 32 * _GIB)
_V5E = Chip("TPU v5e", ("tpu v5 lite", "tpu v5e"), 197e12, 16 * _GIB)
_V5P = Chip("TPU v5p", ("tpu v5",), 459e12, 95 * _GIB)
_V6E = Chip("TPU v6e", ("tpu v6",), 918e12, 32 * _GIB)
_TPU7X = Chip("TPU7x", ("tpu7x",), 1153.5e12, 96 * _GIB)
# The first that matches counts: longer names stand before those that they contain.
_CHIPS = (
    Chip("H100 PCIe", ("h100 pcie",), 756e12),
    Chip("H100", ("h100",), 989e12),
    _H200,
    _V4,
    _V5E,
    _V5P,
    _V6E,
    _TPU7X,
    Chip("B200", ("b200",), 2250e12),
    Chip("A100", ("a100",), 312e12),
    Chip("V100", ("v100",), 125e12),
    Chip("TPU v2", ("tpu v2",), 22.5e12),
    Chip("TPU v3", ("tpu v3",), 61.5e12),
)

_FLAT = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
_DEEP = {4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4", 128: "4x4x8", 256: "4x8x8", 512: "8x8x8"}
# Names of types before the number: the chip, its name in topologies, these by chips, what the number counts a chip as,
# and devices a chip.
_TPUS = {
    "v4": (_V4, "v4", _DEEP, 2, 1),
    "v5litepod": (_V5E, "v5e", _FLAT, 1, 1),
    "v5p": (_V5P, "v5p", _DEEP, 2, 1),
    "v6e": (_V6E, "v6e", _FLAT, 1, 1),
    "tpu7x": (_TPU7X, "tpu7x", _DEEP, 1, 2),
}
_GPUS_IN_ONE_MACHINE = (1, 2, 4, 8)
# A chip alone stands for the smallest slice that its compiler makes.
SHORT = {"v4": "v4-8", "v5e": "v5litepod-4", "v5p": "v5p-8", "v6e": "v6e-4", "tpu7x": "tpu7x-4", "h200": "h200-1"}


def of_kind(device_kind: str) -> Chip | None:
    """Finds the chip that JAX calls by this `device_kind`; None for those that are not in the table, as CPUs."""
    kind = device_kind.lower()
    return next((chip for chip in _CHIPS if any(name in kind for name in chip.kinds)), None)


def parse(type_: str) -> Slice:
    """Parses a type (else `UsageError`): `v5litepod-16`, `h200-8`, `2xv5litepod-16`; or of a chip alone, as `v5e`."""
    if several := re.fullmatch(r"([1-9]\d*)x(.+)", type_):
        n, slice_ = int(several[1]), parse(several[2])
        if n > 1 and slice_.slices == 1 and slice_.platform == "tpu":
            return dataclasses.replace(
                slice_, type=f"{n}x{slice_.type}", count=n * slice_.count, processes=n * slice_.processes, slices=n
            )
    name = SHORT.get(type_, type_)
    family, _, number = name.rpartition("-")
    count = int(number) if re.fullmatch(r"[1-9]\d*", number) else 0
    if family == "h200" and count in _GPUS_IN_ONE_MACHINE:
        return Slice(name, _H200, "cuda", count, f"1x1x{count}", 1)
    if family in _TPUS:
        chip, compiler, topologies, unit, devices = _TPUS[family]
        chips, rest = divmod(count, unit)
        if chips in topologies and not rest:
            # A host has four chips, but all of a slice of up to eight where chips lie flat.
            processes = 1 if chips <= (8 if topologies is _FLAT else 4) else chips // 4
            return Slice(name, chip, "tpu", chips * devices, f"{compiler}:{topologies[chips]}", processes)
    sizes = {name: [unit * n for n in topologies] for name, (_, _, topologies, unit, _) in _TPUS.items()}
    sizes["h200"] = list(_GPUS_IN_ONE_MACHINE)
    known = [*SHORT, *(f"{name}-{{{','.join(map(str, each))}}}" for name, each in sizes.items())]
    raise UsageError(f"--type={type_} is not allowed: it must be one of {', '.join(known)}")
