"""Tables in Markdown: cells, columns of runs, and the lines of a table."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from experiments.core.report.frame import Metric, Numbers, detectable, final, intervals, minus, over_seeds
from experiments.core.report.results import Run


def plus_minus(value: Numbers | None, *, scale: float = 1.0, signed: bool = False) -> str:
    """Writes an interval, multiplied by `scale`, as `5.26 ± 0.09`; `-` if there is no mean."""
    if value is None or value["mean"] is None:
        return "-"
    center = f"{scale * value['mean']:{'+' if signed else ''}z.2f}"
    half = value["interval95"]
    return center if half is None else f"{center} ± {scale * half:.2f}"


def signed(value: Numbers | None) -> str:
    """Writes a difference with its sign, as `+0.43 ± 0.71`; `-` if there is none."""
    return plus_minus(value, signed=True)


def cell(values: Iterable[float | None], *, signed: bool = False) -> str:
    """Writes the interval of values by seed."""
    return plus_minus(over_seeds(values), signed=signed)


def cells(values: pd.DataFrame, *, signed: bool = False) -> "pd.Series[str]":
    """Returns a column: the interval over seeds of each row of values."""
    return pd.Series([cell(row, signed=signed) for row in values.to_numpy()], values.index, dtype=object)


def value(runs: pd.DataFrame, metric: Metric) -> "pd.Series[str]":
    """Returns a column with a metric at the end and its interval; `-` for runs without the metric."""
    return cells(final(runs, metric))


def reached(first: "pd.Series[float]") -> str:
    """Returns the mean over seeds of the step at which something is `first` reached, and how many never reach it."""
    never = first.isna().sum()
    return "never" if never == len(first) else f"{first.mean():.0f}{f' ({never})' if never else ''}"


def minus_reference(runs: pd.DataFrame, references: Mapping[str, Run | None], metric: Metric) -> "pd.Series[str]":
    """Returns a column with a metric minus that of each run's reference, paired by seed: `+0.20 ± 0.05`."""
    return cells(minus(runs, references, metric), signed=True)


def detectable_cells(differences: pd.DataFrame) -> "pd.Series[str]":
    """Returns a column: the true difference that 80 % of such experiments would find (`frame.detectable`)."""
    effects = intervals(differences).map(detectable)
    return effects.map(lambda value: "-" if value is None or np.isnan(value) else f"{value:.2f}")


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
    """Returns the lines of a table whose first `text` columns hold text, the others numbers."""
    return [line(header), line(["---"] * text + ["---:"] * (len(header) - text)), *map(line, rows)]


def line(cells: Iterable[str]) -> str:
    """Returns the line of a row."""
    return "| " + " | ".join(cells) + " |"


def rows(runs: pd.DataFrame, columns: Mapping[str, Any], chosen: Collection[str] | None = None) -> pd.DataFrame:
    """Returns a table of runs: these columns, and the numbers of seeds and of diverged seeds.

    Args:
      runs: the runs.
      columns: by header the cells, in the order of the runs or by their names, `-` where there is none; or the name of
        a metric, for its values at the end with their intervals.
      chosen: names candidates that won, which a last column marks.
    """
    cells = {name: value(runs, its) if isinstance(its, str) else its for name, its in columns.items()}
    made = pd.DataFrame(cells, runs.index).fillna("-")
    seeds, diverged = runs["seeds"].astype(str), runs["diverged"].astype(str)
    if chosen is None:
        return made.assign(seeds=seeds, diverged=diverged)
    marks = ["chosen" if name in chosen else "" for name in runs.index]
    return made.assign(diverged=diverged + " of " + seeds, choice=marks)


def table(rows: pd.DataFrame, *, text: int = 2) -> list[str]:
    """Returns the lines of a table; a column that never varies becomes a sentence below it, unless it is the first.

    A column without values, all empty or `-`, is left out without a sentence.

    Args:
      rows: cells by column. Without rows there are no lines.
      text: how many of the first columns hold text.
    """
    if rows.empty:
        return []
    same = [name for name in rows.columns[1:] if len(rows) > 1 and rows[name].nunique() == 1]
    shown = rows.drop(columns=same)
    left = sum(name not in same for name in rows.columns[:text])
    constant = [f"{name} {value}" for name, value in rows[same].iloc[0].items() if value not in ("", "-")]
    said = ["", f"In every row: {', '.join(constant)}."] if constant else []
    return [*grid(list(shown), shown.to_numpy().tolist(), text=left), *said, ""]


def section(title: str, rows: pd.DataFrame, *, text: int = 2) -> list[str]:
    """Returns the lines of a table under its title."""
    return [f"### {title}", "", *table(rows, text=text)]


def pivot(name: str, cells: Mapping[tuple[str, str], str]) -> pd.DataFrame:
    """Arranges cells, by row and column, in a table; `name` heads the column with the names of the rows."""
    rows, columns = (dict.fromkeys(key[part] for key in cells) for part in (0, 1))
    return pd.DataFrame([{name: row} | {column: cells.get((row, column), "-") for column in columns} for row in rows])
