"""Tables in Markdown: their cells and their lines."""

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

Numbers = dict[str, Any]  # an interval (`summary.interval`)


def plus_minus(value: Numbers | None, *, scale: float = 1.0, signed: bool = False) -> str:
    """Writes an interval, multiplied by `scale`, as `5.26 ± 0.09`; `-` if there is no mean."""
    if value is None or value["mean"] is None:
        return "-"
    center = f"{scale * value['mean']:{'+' if signed else ''}.2f}"
    half = value["interval95"]
    return center if half is None else f"{center} ± {scale * half:.2f}"


def signed(value: Numbers | None) -> str:
    """Writes a difference with its sign, as `+0.43 ± 0.71`; `-` if there is none."""
    return plus_minus(value, signed=True)


def mean(value: Numbers | None, *, scale: float = 1.0, digits: int = 2) -> str:
    """Writes the mean of an interval alone; zero has no sign."""
    return "-" if value is None or value["mean"] is None else f"{scale * value['mean']:z.{digits}f}"


def number(value: float) -> str:
    """Writes a positive number as `1e-3`, `0.01`, `10`."""
    if value >= 0.01:
        return f"{value:g}"
    mantissa, exponent = f"{value:e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def p_name(p: float) -> str:
    """Writes an exponent as `2`, `4/3`, or a decimal."""
    return "4/3" if abs(p - 4 / 3) < 1e-9 else f"{p:g}"


def grid(header: Sequence[str], rows: Iterable[Sequence[str]], *, text: int = 2) -> list[str]:
    """The lines of a table whose first `text` columns are of text, the others of numbers."""
    return [line(header), line(["---"] * text + ["---:"] * (len(header) - text)), *map(line, rows)]


def line(cells: Sequence[str]) -> str:
    """A row."""
    return "| " + " | ".join(cells) + " |"


def table(cells: pd.DataFrame, *, columns: Sequence[str] = (), text: int = 2) -> list[str]:
    """The lines of a table of cells that are written already, and a sentence on the columns that it leaves out.

    Args:
      cells: a column of strings for each of the table. Columns of two or more rows that never vary are left out, but
        for the first, and told below.
      columns: the ones to show; left out: all. A page shows six at most.
      text: how many columns in front are of text.

    Returns:
      The lines; none without rows.
    """
    if cells.empty:
        return []
    chosen = cells[list(columns)] if columns else cells
    same = [name for name in chosen.columns[1:] if len(cells) > 1 and chosen[name].nunique() == 1]
    shown = chosen.drop(columns=same)
    left = sum(name not in same for name in chosen.columns[:text])
    lines = grid(list(shown.columns), shown.itertuples(index=False), text=left)
    told = [f"{name} {chosen[name].iloc[0]}" for name in same if chosen[name].iloc[0] not in ("", "-")]
    return [*lines, *(["", f"In every row: {', '.join(told)}."] if told else []), ""]


def outcome(found: pd.DataFrame) -> dict[str, pd.Series]:
    """The last columns of a table of runs: how many seeds there are, and how many of them diverged."""
    summaries = found["run"].map(lambda run: run.summary)
    return {
        "seeds": summaries.map(lambda summary: str(len(summary["seeds"]))),
        "diverged": summaries.map(lambda summary: str(summary["diverged"])),
    }
