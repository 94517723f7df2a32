"""Tables in Markdown: their cells and their lines."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from experiments.core.record.summary import interval
from experiments.core.report.paired import Metric, Worth, detectable, minus, over_examples
from experiments.core.report.results import Run

Numbers = dict[str, Any]  # an interval (`summary.interval`)
Cells = dict[str, str]  # of a row, by the name of the column
Columns = dict[str, Callable[[Run], str]]  # by name, the cell of a run


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


def line(cells: Iterable[str]) -> str:
    """A row."""
    return "| " + " | ".join(cells) + " |"


def table(rows: Sequence[Mapping[str, str]], *, text: int = 2) -> list[str]:
    """The lines of a table, and a sentence on the columns that it leaves out: those that never vary, but for the first.

    Args:
      rows: the cells of each by column, the same columns in all of them.
      text: how many columns in front are of text.

    Returns:
      The lines; none without rows.
    """
    if not rows:
        return []
    columns = list(rows[0])
    same = [name for name in columns[1:] if len(rows) > 1 and len({row[name] for row in rows}) == 1]
    shown = [name for name in columns if name not in same]
    left = sum(name not in same for name in columns[:text])
    lines = grid(shown, [[row[name] for name in shown] for row in rows], text=left)
    told = [f"{name} {rows[0][name]}" for name in same if rows[0][name] not in ("", "-")]
    return [*lines, *(["", f"In every row: {', '.join(told)}."] if told else []), ""]


def pivot(name: str, cells: Iterable[tuple[str, str, str]]) -> list[Cells]:
    """The rows of cells that are given with their row and their column; `name` is that of the column of rows."""
    found = {(row, column): cell for row, column, cell in cells}
    rows, columns = (dict.fromkeys(key[part] for key in found) for part in (0, 1))
    return [{name: row} | {column: found.get((row, column), "-") for column in columns} for row in rows]


def section(title: str, rows: Sequence[Mapping[str, str]], *, text: int = 2) -> list[str]:
    """The lines of a table under its title."""
    return [f"### {title}", "", *table(rows, text=text)]


def value(metric: Metric, *, scale: float = 1.0) -> Callable[[Run], str]:
    """A column of a metric at the end, with its interval; `-` for runs that have no such metric."""
    if isinstance(metric, str):
        return lambda run: plus_minus(run.end(metric), scale=scale)
    return lambda run: plus_minus(interval(metric(run)), scale=scale)


def over(
    references: Mapping[str, Run | None], metric: Metric, of_reference: Metric = "", *, worth: Worth | None = None
) -> Callable[[Run], str]:
    """A column of a metric minus that of each run's reference, paired by seed: `+0.20 ± 0.05`.

    Args:
      references: by the name of the run.
      metric: of the run.
      of_reference: the metric of the reference, where it is another.
      worth: as in `over_examples`, whose half width follows after a stroke where examples were kept.
    """

    def cell(run: Run) -> str:
        reference = references.get(run.name)
        found = minus(run, reference, metric, of_reference=of_reference or metric)
        if found and reference and worth and isinstance(metric, str):
            by_example = over_examples(run, reference, metric, worth)
            return signed(found) if by_example is None else f"{signed(found)} / {by_example:.2f}"
        return signed(found)

    return cell


def power(references: Mapping[str, Run | None], metric: Metric) -> Callable[[Run], str]:
    """A column of the true difference that four of five such experiments would find (`detectable`)."""

    def cell(run: Run) -> str:
        found = detectable(minus(run, references.get(run.name), metric))
        return "-" if found is None else f"{found:.2f}"

    return cell


def rows(
    first: Iterable[Cells], runs: Sequence[Run], columns: Columns, chosen: Collection[str] | None = None
) -> list[Cells]:
    """The rows of runs: their first cells, the columns, how many seeds there are, and how many of them diverged.

    Of runs that are candidates `chosen` names those that won, which is told in a last column.
    """
    made = []
    for cells, run in zip(first, runs, strict=True):
        seeds, diverged = str(len(run.summary["seeds"])), str(run.summary["diverged"])
        ends = {"seeds": seeds, "diverged": diverged}
        if chosen is not None:
            ends = {"diverged": f"{diverged} of {seeds}", "choice": "chosen" if run.name in chosen else ""}
        made.append(cells | {name: cell(run) for name, cell in columns.items()} | ends)
    return made
