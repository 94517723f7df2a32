"""Cells and lines of the tables, in Markdown."""

from collections.abc import Iterable, Sequence
from typing import Any

Numbers = dict[str, Any]


def plus_minus(value: Numbers | None, *, scale: float = 1.0, signed: bool = False) -> str:
    """`5.26 ± 0.09` of an interval (`summary.interval`), multiplied by `scale`; `-` if there is no mean."""
    if value is None or value["mean"] is None:
        return "-"
    center = f"{scale * value['mean']:{'+' if signed else ''}.2f}"
    half = value["interval95"]
    return center if half is None else f"{center} ± {scale * half:.2f}"


def mean(value: Numbers, *, scale: float) -> str:
    """The mean of an interval alone."""
    return "-" if value["mean"] is None else f"{scale * value['mean']:.2f}"


def grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table: two columns of text, the others of numbers."""
    return [line(header), line(["---"] * 2 + ["---:"] * (len(header) - 2)), *map(line, rows)]


def line(cells: Sequence[str]) -> str:
    """A row."""
    return "| " + " | ".join(cells) + " |"


def number(value: float) -> str:
    """`1e-3`, `0.01`, `10`."""
    if value >= 0.01:
        return f"{value:g}"
    mantissa, exponent = f"{value:e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def p_name(p: float) -> str:
    """`2`, `4/3`, or a decimal."""
    return "4/3" if abs(p - 4 / 3) < 1e-9 else f"{p:g}"
