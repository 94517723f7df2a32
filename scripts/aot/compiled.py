"""What the compiler says of a program: memory and contents, or why it refuses it."""

import dataclasses
import re
import time
from pathlib import Path
from typing import Any

from jax.stages import Lowered

from scripts.aot import contents
from scripts.aot.contents import Buffer, Contents

_UNITS = {"": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30}
_SIZE = r"([\d.]+)([KMG]?)i?B?"
# Before it has placed anything, and when it has.
_EXCEEDED = (
    re.compile(rf"required for [\w ]+ \({_SIZE}\) exceeds available HBM \({_SIZE}\)"),
    re.compile(rf"Used {_SIZE} of {_SIZE} hbm"),
)
_ALLOCATION = re.compile(
    rf"Size: {_SIZE}\s*\n(?:\s*Operator: op_name=\"(?P<source>[^\"]*)\"[^\n]*\n)?\s*Shape: (?P<shape>\w+\[[^\]]*\])"
)
_LONGEST = 400  # characters of an error


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes on each device.

    Attributes:
      arguments: what is given to the program.
      results: what it makes, less what it writes over arguments.
      temporary: in between.
      code: the program.
    """

    arguments: float
    results: float
    temporary: float
    code: float

    @property
    def peak(self) -> float:
        """All that is there at the same time at most."""
        return self.arguments + self.results + self.temporary + self.code


@dataclasses.dataclass(frozen=True)
class TooLarge(Exception):
    """The compiler refuses a program that needs more memory than there is.

    Attributes:
      needed: bytes.
      available: bytes.
      largest: of the arrays that it would make.
    """

    needed: float
    available: float
    largest: tuple[Buffer, ...]


class Refused(Exception):
    """The compiler refuses a program for another reason, in a line."""


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A program that the compiler takes.

    Attributes:
      seconds: that it took.
      memory: on each device.
      flops: operations that the compiler counts, each loop as one round.
      contents: what it holds.
    """

    seconds: float
    memory: Memory
    flops: float
    contents: Contents


def compile_(lowered: Lowered, platform: str, keep: Path | None = None) -> Compiled:
    """Compiles it, and keeps the text of what was compiled in the file `keep`.

    Raises:
      TooLarge: it needs more memory than a device has, and the compiler says so itself, as TPU's does.
      Refused: whatever else the compiler says.
    """
    start = time.perf_counter()
    try:
        compiled = lowered.compile()
    except Exception as error:  # of XLA, under various names
        text = str(error)
        if exceeded := next(filter(None, (pattern.search(text) for pattern in _EXCEEDED)), None):
            needed, available = _bytes(*exceeded.groups()[:2]), _bytes(*exceeded.groups()[2:])
            raise TooLarge(needed, available, _allocations(text)) from error
        raise Refused(" ".join(text.split())[:_LONGEST] or type(error).__name__) from error
    seconds = time.perf_counter() - start
    found: Any = compiled.memory_analysis()
    memory = Memory(
        found.argument_size_in_bytes,
        found.output_size_in_bytes - found.alias_size_in_bytes,
        found.temp_size_in_bytes,
        found.generated_code_size_in_bytes,
    )
    costs: Any = compiled.cost_analysis() or {}
    flops = (costs[0] if isinstance(costs, list) else costs).get("flops", 0.0)
    text = compiled.as_text() or ""
    if keep:
        keep.parent.mkdir(parents=True, exist_ok=True)
        keep.write_text(text)
    return Compiled(seconds, memory, flops, contents.of(text, platform))


def _allocations(text: str) -> tuple[Buffer, ...]:
    """The list in the compiler's message."""
    found = [
        Buffer(match["shape"], _bytes(match[1], match[2]), match["source"] or "")
        for match in _ALLOCATION.finditer(text)
    ]
    return tuple(found)


def _bytes(number: str, unit: str) -> float:
    return float(number) * _UNITS[unit]
