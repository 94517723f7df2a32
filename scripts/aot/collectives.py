"""What devices send each other in a compiled program."""

import dataclasses
import math
import re

from scripts.aot.hlo import Instruction

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast")
_KINDS = (*KINDS, "ragged-all-to-all")


@dataclasses.dataclass(frozen=True)
class Collective:
    """One of them.

    Attributes:
      kind: one of KINDS.
      bytes: of what it makes on each device; of a reduce-scatter, of what it takes.
      group: devices that talk to each other.
      source: what JAX calls the operation.
    """

    kind: str
    bytes: float
    group: int
    source: str

    @property
    def sent(self) -> float:
        """Bytes that a device has to send at least, by the best algorithm known."""
        others = (self.group - 1) / self.group
        if self.kind == "all-reduce":
            return 2 * others * self.bytes
        return self.bytes if self.kind.startswith("collective") else others * self.bytes


def of(instruction: Instruction, operand_bytes: float) -> Collective | None:
    """The collective that an instruction is, or begins."""
    kind = instruction.opcode.removesuffix("-start")
    if kind not in _KINDS:
        return None
    made = sum(shape.bytes for shape in instruction.shapes)
    if kind == "reduce-scatter":
        made = operand_bytes
    elif instruction.opcode.endswith("-start") and kind != "all-reduce":
        made = max(made - operand_bytes, 0.0)  # the tuple has the operands, too
    return Collective(kind.removeprefix("ragged-"), made, _group(instruction), instruction.source)


def _group(instruction: Instruction) -> int:
    """How many devices are in a group, by any of the three ways to write it; 2 of a permutation."""
    text = instruction.attributes
    if mesh := re.search(r"replica_groups=(?:@\w+)?mesh\[([^\]]*)\].*?\{([^}]*)\}", text):
        sizes = dict(re.findall(r"'([^']+)'=(\d+)", mesh[1]))
        # An axis, or a part of one with its size behind the parentheses.
        axes = re.findall(r"'([^']+)'(?::\(\d+\)(\d+))?", mesh[2])
        return math.prod(int(part or sizes[axis]) for axis, part in axes)
    if iota := re.search(r"replica_groups=\[(\d+),(\d+)\]<=", text):
        return int(iota[2])
    if listed := re.search(r"replica_groups=\{\{([\d,]*)\}", text):
        return len(listed[1].split(","))
    return 2
