"""Reads a program in XLA's text form, in one pass of one expression: its collectives and its largest arrays.

A collective in a loop counts as often as the loop goes round, where the text says how often: by the compiler's own
count, or by a condition that compares a counter with a number. In a loop that ends when its data are done it counts
once, and is marked.
"""

import collections
import dataclasses
import math
import re

_LINE = re.compile(
    r"^(?:(?P<entry>ENTRY )?%?(?P<computation>[\w.\-]+) (?:\(.*)?\{|"
    r"\s+(?P<root>ROOT )?%?(?P<name>[\w.\-]+) = (?P<made>.*?) (?P<opcode>[a-z][\w\-]*)\((?P<rest>.*))$",
    re.MULTILINE,
)
_SHAPE = re.compile(r"(?P<dtype>[a-z]+\d*(?:e\d+m\d+\w*)?)\[(?P<dims>[\d,<=]*)\](?:\{(?P<layout>[^}]*)\})?")
_CALLED = re.compile(r"(?:calls|body|condition|to_apply|\w+_computations?)=(?:\{([^}]*)\}|%?([\w.\-]+))")
_KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast")
# Names of what is there already, structure, and arrays that are never written to memory.
_NO_BUFFER = re.compile(
    r"(tuple|get-tuple-element|bitcast|while|conditional|call|opt-barrier|after-all|constant|iota|broadcast|.*-start)$"
)


@dataclasses.dataclass(frozen=True)
class Buffer:
    """An array that the program takes or makes: its bytes without padding, and what JAX calls it."""

    shape: str
    bytes: float
    source: str


@dataclasses.dataclass
class Collective:
    """All collectives of a `kind` among groups of as many devices, in a call of the program.

    `sent` are the bytes that a device has to send for all of them, by the best algorithm known. They are `at_least` as
    many where a loop goes on until its data are done.
    """

    kind: str
    group: int
    count: int = 0
    sent: float = 0.0
    at_least: bool = False


def read(text: str, number: int = 6) -> tuple[list[Collective], list[Buffer]]:
    """Returns the collectives of a program in XLA's text form, and its `number` largest arrays of different shapes.

    Raises:
      ValueError: the text is none.
    """
    program = _Program()
    for line in _LINE.finditer(text):
        program.take(line)
    if not program.entry:
        raise ValueError("the text is not that of a program: it has no ENTRY computation")
    totals: dict[tuple[str, int], Collective] = {}
    for computation, kind, group, sent in program.collectives:
        count, known = program.times(computation)
        total = totals.setdefault((kind, group), Collective(kind, group))
        total.count += count
        total.sent += count * sent
        total.at_least |= not known
    buffers = [buffer for computation, buffer in program.buffers if computation not in program.fused]
    by_shape = {buffer.shape: buffer for buffer in reversed(buffers)}
    largest = sorted(by_shape.values(), key=lambda buffer: -buffer.bytes)[:number]
    return sorted(totals.values(), key=lambda collective: -collective.sent), largest


class _Program:
    """Collects what the lines of a program say, one by one; `here` is the computation that the last one was in."""

    def __init__(self) -> None:
        self.entry = self.here = ""
        self.fused: set[str] = set()  # computations whose arrays are never in memory
        self.buffers: list[tuple[str, Buffer]] = []
        self.collectives: list[tuple[str, str, int, float]] = []  # computation, kind, group, bytes sent
        self._callers: dict[str, list[tuple[str, str]]] = collections.defaultdict(list)  # and text of a loop
        self._numbers: dict[str, int] = {}  # constants by name
        self._limits: dict[str, str] = {}  # names of what computations compare a counter with

    def take(self, line: re.Match[str]) -> None:
        if line["computation"]:
            self.here = line["computation"]
            self.entry = self.here if line["entry"] else self.entry
            return
        opcode, rest = line["opcode"], line["rest"]
        called = [name.strip("% ") for groups in _CALLED.findall(rest) for name in "".join(groups).split(",")]
        for name in called:
            self._callers[name].append((self.here, rest if opcode == "while" else ""))
        if opcode == "fusion":
            self.fused.update(called)
        elif opcode == "constant" and (value := re.match(r"\d+(?=\))", rest)):
            self._numbers[line["name"]] = int(value[0])
        elif opcode == "compare" and line["root"] and "direction=LT" in rest:
            self._limits[self.here] = re.findall(r"([\w.\-]+)[,)]", rest)[1]
        source = re.search(r'op_name="([^"]*)"', rest)
        made = [
            _array(shape, source[1].replace("\\'", "'") if source else "") for shape in _SHAPE.finditer(line["made"])
        ]
        if collective := _collective(opcode, rest, [buffer.bytes for buffer, _ in made]):
            self.collectives.append((self.here, *collective))
        if not _NO_BUFFER.match(opcode) and (opcode != "parameter" or self.here == self.entry):
            self.buffers += [(self.here, buffer) for buffer, in_memory in made if in_memory]

    def times(self, computation: str) -> tuple[int, bool]:
        """Counts how often a call of the program runs a computation; False with it where that is only the least."""
        if computation == self.entry or computation not in self._callers:
            return 1, computation == self.entry
        total, all_known = 0, True
        for caller, loop in self._callers[computation]:
            count, known = self.times(caller)
            rounds = self._rounds(loop) if loop else 1
            total += count * (rounds or 1)
            all_known &= known and rounds is not None
        return total, all_known

    def _rounds(self, loop: str) -> int | None:
        """Finds the number of rounds of a loop; None where its data decide."""
        if known := re.search(r'known_trip_count"?:\s*\{"?n"?:\s*"?(\d+)', loop):
            return int(known[1])
        condition = re.search(r"condition=%?([\w.\-]+)", loop)
        return self._numbers.get(self._limits.get(condition[1], "")) if condition else None


def _array(shape: re.Match[str], source: str) -> tuple[Buffer, bool]:
    """An array, and whether it is in the main memory: others, as S(1), are on the chip."""
    bits = re.search(r"\d+", shape["dtype"])
    item = int(bits[0]) / 8 if bits else float(shape["dtype"] == "pred")
    size = math.prod(int(dim.lstrip("<=")) for dim in shape["dims"].split(",") if dim) * item
    return Buffer(f"{shape['dtype']}[{shape['dims']}]", size, source), not re.search(r"S\([1-9]", shape["layout"] or "")


def _collective(opcode: str, rest: str, made: list[float]) -> tuple[str, int, float] | None:
    """Kind, group and bytes sent of the collective that an instruction is, or begins; None if it is another."""
    if opcode == "send" and "xla_megascale_runtime" in rest:  # by which hosts send what slices exchange
        return "send to other slices", 2, made[0]
    kind = opcode.removesuffix("-start").removeprefix("ragged-")
    if kind not in _KINDS:
        return None
    group = _group(rest)
    if opcode.endswith("-start") and kind != "all-reduce":  # a tuple of operands, as many results, and counters
        arrays = [size for size in made if size > 4]
        made = arrays[len(arrays) // 2 :]
    others, total = (group - 1) / group, sum(made)
    factors = {"all-reduce": 2 * others, "reduce-scatter": others * group}
    return kind, group, factors.get(kind, 1.0 if kind.startswith("collective") else others) * total


def _group(rest: str) -> int:
    """Finds the number of devices in a group, in any of the three notations; 2 for a permutation."""
    if mesh := re.search(r"replica_groups=(?:@\w+)?mesh\[([^\]]*)\].*?\{([^}]*)\}", rest):
        sizes = dict(re.findall(r"'([^']+)'=(\d+)", mesh[1]))
        # An axis, or a part of one with its size behind the parentheses.
        axes = re.findall(r"'([^']+)'(?::\(\d+\)(\d+))?", mesh[2])
        return math.prod(int(part or sizes[axis]) for axis, part in axes)
    if iota := re.search(r"replica_groups=\[(\d+),(\d+)\]<=", rest):
        return int(iota[2])
    listed = re.search(r"replica_groups=\{\{([\d,]*)\}", rest)
    return len(listed[1].split(",")) if listed else 2
