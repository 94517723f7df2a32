"""What a compiled program holds: kernels, loops, sorts, round trips to the host, bytes, collectives, memory.

Everything is of one device. A *round* is one of a loop; loops in loops count as often as both go round. Rounds that the
compiler does not know, since a loop goes on until its data are done, are `assumed`, and said to be.
"""

import dataclasses
import math
import re
from typing import Any

from scripts.aot import collectives, hlo, traffic
from scripts.aot.collectives import Collective
from scripts.aot.hlo import Computation, Instruction, Module, parse

_HOST = ("infeed", "outfeed", "send", "recv")
_BETWEEN_SLICES = "xla_megascale_runtime"  # through which hosts send each other what their slices exchange
_TOP_K = re.compile(r'custom_call_target="[^"]*topk', re.IGNORECASE)
_LARGEST = 6


@dataclasses.dataclass
class Part:
    """The kernels between two loops, of the program itself or of one of its loops, in one round of it.

    Attributes:
      name: of the loop as JAX calls it; empty for the program itself.
      rounds: of the loop alone, None where only its data tell.
      parents: parts that it is inside of, from the outermost.
      kernels: that are launched, collectives included; copies that go on beside them are none.
      bytes: that they read from and write to the main memory.
      touched: the same, with what stays on the chip.
      sorts: and calls of a library's top-k.
      gathers: and scatters.
      host: times that the host has to look before it goes on.
      between_slices: bytes sent to other slices, by the network of the data centre.
      collectives: sent and received.
    """

    name: str = ""
    rounds: int | None = 1
    parents: tuple["Part", ...] = ()
    kernels: int = 0
    bytes: float = 0.0
    touched: float = 0.0
    sorts: int = 0
    gathers: int = 0
    host: int = 0
    between_slices: float = 0.0
    collectives: list[Collective] = dataclasses.field(default_factory=list)

    def times(self, assumed: float) -> float:
        """How often it is gone through in a call of the program."""
        return math.prod(assumed if part.rounds is None else part.rounds for part in (*self.parents, self))


@dataclasses.dataclass(frozen=True)
class Buffer:
    """An array that the program makes."""

    shape: str
    bytes: float
    source: str


@dataclasses.dataclass(frozen=True)
class Contents:
    """See the module.

    Attributes:
      parts: the first is the program itself, the others its loops.
      largest: arrays that it makes.
    """

    parts: tuple[Part, ...]
    largest: tuple[Buffer, ...]

    @property
    def outside(self) -> Part:
        """What is in no loop."""
        return self.parts[0]

    @property
    def loops(self) -> tuple[Part, ...]:
        """The rest."""
        return self.parts[1:]

    @property
    def unknown(self) -> tuple[Part, ...]:
        """Loops whose rounds follow from the data."""
        return tuple(part for part in self.loops if part.rounds is None)

    def total(self, count: str, assumed: float) -> float:
        """A count of parts by its name, as `kernels` or `bytes`, of a call: loops times their rounds."""
        return sum(getattr(part, count) * part.times(assumed) for part in self.parts)

    def sent(self, assumed: float) -> float:
        """Bytes that a device sends in a call."""
        return sum(one.sent * part.times(assumed) for part in self.parts for one in part.collectives)

    def collectives(self, assumed: float) -> list[dict[str, Any]]:
        """All kinds with their numbers, bytes made and sent, the largest first."""
        rows: dict[tuple[str, int], dict[str, Any]] = {}
        for part in self.parts:
            for one in part.collectives:
                row = rows.setdefault(
                    (one.kind, one.group), {"kind": one.kind, "group": one.group, "count": 0, "bytes": 0.0, "sent": 0.0}
                )
                times = part.times(assumed)
                row["count"] += round(times)
                row["bytes"] += one.bytes * times
                row["sent"] += one.sent * times
        return sorted(rows.values(), key=lambda row: -row["sent"])


def of(text: str, platform: str) -> Contents:
    """Of the program that `compiled.as_text()` prints, for a platform of XLA's: there the host may have to look."""
    module = parse(text)
    parts: list[Part] = [Part()]
    buffers: dict[str, Buffer] = {}
    _walk(module, module.computations[module.entry], parts[0], parts, buffers, platform)
    largest = sorted(buffers.values(), key=lambda buffer: -buffer.bytes)[:_LARGEST]
    return Contents(tuple(parts), tuple(largest))


def _walk(
    module: Module,
    computation: Computation,
    part: Part,
    parts: list[Part],
    buffers: dict[str, Buffer],
    platform: str,
) -> None:
    for instruction in computation.instructions:
        opcode = instruction.opcode

        def into(name: str | None, inner: Part) -> None:
            if name in module.computations:
                _walk(module, module.computations[name], inner, parts, buffers, platform)

        if opcode == "while":
            rounds = hlo.rounds(instruction, module)
            loop = Part(instruction.source, rounds, () if part is parts[0] else (*part.parents, part))
            parts.append(loop)
            into(instruction.called("body"), loop)
            into(instruction.called("condition"), loop)
            # The condition lies on the device, and who starts kernels has to know.
            loop.host += platform == "cuda" and rounds is None
        elif opcode == "conditional":
            part.host += platform == "cuda"
            for name in instruction.branches:
                into(name, part)
        elif opcode == "call":
            into(instruction.called("to_apply"), part)
        elif opcode == "async-start":
            into(instruction.called("calls"), part)
        if opcode not in traffic.NOTHING and opcode != "async-start":
            # On TPUs single numbers are computed beside the kernels, by a unit of their own.
            part.kernels += traffic.is_kernel(instruction) and not (
                platform == "tpu" and traffic.is_scalar(instruction, computation)
            )
            part.bytes += traffic.moved(instruction, computation, module)
            part.touched += traffic.moved(instruction, computation, module, traffic.anywhere)
            _look_inside(module, instruction, computation, part)
            for shape in instruction.shapes:
                if shape.space == 0 and opcode not in ("iota", "broadcast"):
                    buffers.setdefault(
                        f"{instruction.name} {shape}", Buffer(str(shape), shape.bytes, instruction.source)
                    )


def _look_inside(module: Module, instruction: Instruction, computation: Computation, part: Part) -> None:
    """What the kernel does, and those that are fused in it."""
    opcode = instruction.opcode
    # By its target alone: kernels of the operators are called after a top-k, too.
    part.sorts += opcode == "sort" or _TOP_K.search(instruction.attributes) is not None
    part.gathers += opcode in ("gather", "scatter")
    attributes = instruction.attributes.split("metadata=")[0]
    between = _BETWEEN_SLICES in attributes
    part.host += (opcode.removesuffix("-start") in _HOST and not between) or "callback" in attributes
    operand_bytes = sum(
        shape.bytes
        for name in instruction.operands
        if name in computation.by_name
        for shape in computation.by_name[name].shapes
    )
    part.between_slices += operand_bytes if between and opcode == "send" else 0.0
    if found := collectives.of(instruction, operand_bytes):
        part.collectives.append(found)
    if opcode == "fusion" and (body := module.computations.get(instruction.called("calls") or "")):
        for inner in body.instructions:
            _look_inside(module, inner, body, part)
