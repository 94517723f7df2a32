"""The text of a compiled program as data: computations of instructions, with the shapes of what they make."""

import dataclasses
import functools
import math
import re
from collections.abc import Iterator

_BYTES = {"pred": 1.0, "token": 0.0, "opaque": 0.0}
_SHAPE = re.compile(r"([a-z]+\d*(?:e\d+m\d+\w*)?)\[([\d,<=]*)\](?:\{([^}]*)\})?")
_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_INSTRUCTION = re.compile(r"^\s*(ROOT )?%?([\w.\-]+) = (.*)$")
_OPCODE = re.compile(r"\s*([a-z][\w\-]*)\(")
_MEMORY_SPACE = re.compile(r"S\((\d+)\)")


@dataclasses.dataclass(frozen=True)
class Shape:
    """Of an array.

    Attributes:
      dtype: as XLA writes it.
      dims: of the array.
      space: the memory that it lies in: 0 is the main one, others are on chip.
    """

    dtype: str
    dims: tuple[int, ...]
    space: int = 0

    @property
    def bytes(self) -> float:
        """Without padding."""
        return math.prod(self.dims) * _item_bytes(self.dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


@functools.cache
def _item_bytes(dtype: str) -> float:
    if dtype in _BYTES:
        return _BYTES[dtype]
    bits = re.search(r"\d+", dtype)
    return int(bits[0]) / 8 if bits else 0.0


@dataclasses.dataclass(frozen=True)
class Instruction:
    """A line of a computation.

    Attributes:
      name: unique in the program.
      opcode: as XLA writes it.
      shapes: of the arrays that it makes: one, or those of a tuple.
      operands: names of instructions; of parameters and constants the number.
      attributes: the rest of the line.
      is_root: whether it is the computation's result.
    """

    name: str
    opcode: str
    shapes: tuple[Shape, ...]
    operands: tuple[str, ...]
    attributes: str
    is_root: bool = False

    def called(self, attribute: str) -> str | None:
        """The computation that an attribute names, as `body` of a loop."""
        found = re.search(rf"\b{attribute}=%?([\w.\-]+)", self.attributes)
        return found[1] if found else None

    @property
    def branches(self) -> list[str]:
        """The computations that a conditional chooses from."""
        if found := re.search(r"branch_computations=\{([^}]*)\}", self.attributes):
            return re.findall(r"%?([\w.\-]+)", found[1])
        return [name for part in ("true", "false") if (name := self.called(f"{part}_computation"))]

    @property
    def trip_count(self) -> int | None:
        """The rounds of a loop, where the compiler knows them."""
        found = re.search(r'known_trip_count"?:\s*\{"?n"?:\s*"?(\d+)', self.attributes)
        return int(found[1]) if found else None

    @property
    def source(self) -> str:
        """What JAX called it."""
        found = re.search(r'op_name="([^"]*)"', self.attributes)
        return found[1] if found else ""


@dataclasses.dataclass(frozen=True)
class Computation:
    """Instructions in order, and by name."""

    name: str
    instructions: tuple[Instruction, ...]

    @functools.cached_property
    def by_name(self) -> dict[str, Instruction]:
        """The instructions."""
        return {instruction.name: instruction for instruction in self.instructions}

    @functools.cached_property
    def users(self) -> dict[str, list[Instruction]]:
        """Who takes what an instruction makes."""
        users: dict[str, list[Instruction]] = {}
        for instruction in self.instructions:
            for name in dict.fromkeys(instruction.operands):
                users.setdefault(name, []).append(instruction)
        return users

    @functools.cached_property
    def root(self) -> Instruction:
        """The result."""
        return next((one for one in self.instructions if one.is_root), self.instructions[-1])

    @functools.cached_property
    def parameters(self) -> dict[int, Instruction]:
        """By number."""
        found = {}
        for instruction in self.instructions:
            if instruction.opcode == "parameter":
                found[int(instruction.operands[0])] = instruction
        return found


@dataclasses.dataclass(frozen=True)
class Module:
    """A program."""

    computations: dict[str, Computation]
    entry: str


def rounds(loop: Instruction, module: Module) -> int | None:
    """Of a loop: as the compiler says or, where it does not, as those that count up to a number say, from 0."""
    if loop.trip_count is not None:
        return loop.trip_count
    condition = module.computations.get(loop.called("condition") or "")
    if condition is None or condition.root.opcode != "compare" or "direction=LT" not in condition.root.attributes:
        return None
    counter, limit = (condition.by_name.get(name) for name in condition.root.operands)
    if counter is None or limit is None or (counter.opcode, limit.opcode) != ("get-tuple-element", "constant"):
        return None
    return int(limit.operands[0])


def parse(text: str) -> Module:
    """The program that `compiled.as_text()` prints."""
    computations: dict[str, Computation] = {}
    entry, name = "", ""
    lines: list[Instruction] = []
    for line in text.splitlines():
        if header := _HEADER.match(line):
            name, lines = header[2], []
            entry = name if header[1] else entry
        elif line.startswith("}") and name:
            computations[name] = Computation(name, tuple(lines))
            name = ""
        elif name and (instruction := _instruction(line)):
            lines.append(instruction)
    if not entry:
        raise ValueError("the text is not that of a compiled program: it has no ENTRY computation")
    return Module(computations, entry)


def shapes(text: str) -> tuple[Shape, ...]:
    """All that are written in a text."""
    found = []
    for dtype, dims, layout in _SHAPE.findall(text):
        space = _MEMORY_SPACE.search(layout)
        sizes = tuple(int(size.lstrip("<=")) for size in dims.split(",") if size)
        found.append(Shape(dtype, sizes, int(space[1]) if space else 0))
    return tuple(found)


def _instruction(line: str) -> Instruction | None:
    match = _INSTRUCTION.match(line)
    if not match:
        return None
    root, name, rest = match.groups()
    rest = re.sub(r"/\*.*?\*/", "", rest)
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.find(" ")
    opcode = _OPCODE.match(rest, end)
    if not opcode:
        return None
    close = _closing(rest, opcode.end() - 1)
    inside = rest[opcode.end() : close]
    if opcode[1] in ("parameter", "constant"):
        operands: tuple[str, ...] = (inside,)  # a number
    else:
        operands = tuple(re.findall(r"%([\w.\-]+)", inside)) or _bare(inside)
    return Instruction(name, opcode[1], shapes(rest[:end]), operands, rest[close + 1 :], root is not None)


def _bare(inside: str) -> tuple[str, ...]:
    """Operands that are written without a %, by their last words."""
    parts: Iterator[str] = (part.strip().rpartition(" ")[2] for part in re.split(r",(?![^\[{(]*[\]})])", inside))
    return tuple(part for part in parts if re.fullmatch(r"[a-zA-Z_][\w.\-]*", part))


def _closing(text: str, start: int) -> int:
    """Where the parenthesis that opens at `start` closes."""
    depth = 0
    for place in range(start, len(text)):
        if text[place] == "(":
            depth += 1
        elif text[place] == ")":
            depth -= 1
            if not depth:
                return place
    return len(text)
