"""Tables in Markdown: cells, columns of runs, and the lines of a table."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from experiments.core.record.summary import interval
from experiments.core.report.paired import ExampleMetric, Metric, detectable, half_width_over_examples, minus
from experiments.core.report.results import Run

Numbers = dict[str, Any]  # an interval (`summary.interval`)
Cells = dict[str, str]  # a row: its cells by the names of the columns
Columns = dict[str, Callable[[Run], str]]  # by the name of a column, the function that writes the cell of a run


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
    """Returns the lines of a table whose first `text` columns hold text, the others numbers."""
    return [line(header), line(["---"] * text + ["---:"] * (len(header) - text)), *map(line, rows)]


def line(cells: Iterable[str]) -> str:
    """Returns the line of a row."""
    return "| " + " | ".join(cells) + " |"


def table(rows: Sequence[Mapping[str, str]], *, text: int = 2) -> list[str]:
    """Returns the lines of a table; a column that never varies becomes a sentence below it, unless it is the first.

    Args:
      rows: cells by column; all rows have the same columns. Without rows there are no lines.
      text: how many of the first columns hold text.
    """
    if not rows:
        return []
    columns = list(rows[0])
    same = [name for name in columns[1:] if len(rows) > 1 and len({row[name] for row in rows}) == 1]
    shown = [name for name in columns if name not in same]
    left = sum(name not in same for name in columns[:text])
    lines = grid(shown, [[row[name] for name in shown] for row in rows], text=left)
    constant = [f"{name} {rows[0][name]}" for name in same if rows[0][name] not in ("", "-")]
    return [*lines, *(["", f"In every row: {', '.join(constant)}."] if constant else []), ""]


def pivot(name: str, cells: Iterable[tuple[str, str, str]]) -> list[Cells]:
    """Arranges cells, given as (row, column, text), in rows; `name` heads the column with the names of the rows."""
    found = {(row, column): cell for row, column, cell in cells}
    rows, columns = (dict.fromkeys(key[part] for key in found) for part in (0, 1))
    return [{name: row} | {column: found.get((row, column), "-") for column in columns} for row in rows]


def section(title: str, rows: Sequence[Mapping[str, str]], *, text: int = 2) -> list[str]:
    """Returns the lines of a table under its title."""
    return [f"### {title}", "", *table(rows, text=text)]


def value(metric: Metric, *, scale: float = 1.0) -> Callable[[Run], str]:
    """Returns a column with a metric at the end and its interval; `-` for runs without the metric."""
    if isinstance(metric, str):
        return lambda run: plus_minus(run.end(metric), scale=scale)
    return lambda run: plus_minus(interval(metric(run)), scale=scale)


def minus_reference(
    references: Mapping[str, Run | None], metric: Metric, *, per_example: ExampleMetric | None = None
) -> Callable[[Run], str]:
    """Returns a column with a metric minus that of each run's reference, paired by seed: `+0.20 ± 0.05`.

    Args:
      references: the references, by the names of the runs.
      metric: the metric of both.
      per_example: its values by example. With them the half width of the interval over examples follows after a stroke,
        where runs have kept their examples.
    """

    def cell(run: Run) -> str:
        reference = references.get(run.name)
        found = minus(run, reference, metric)
        if found and reference and per_example:
            half = half_width_over_examples(run, reference, metric, per_example)
            return signed(found) if half is None else f"{signed(found)} / {half:.2f}"
        return signed(found)

    return cell


def detectable_difference(references: Mapping[str, Run | None], metric: Metric) -> Callable[[Run], str]:
    """Returns a column with the true difference that 80 % of such experiments would find (`paired.detectable`)."""

    def cell(run: Run) -> str:
        found = detectable(minus(run, references.get(run.name), metric))
        return "-" if found is None else f"{found:.2f}"

    return cell


def rows(
    first: Iterable[Cells], runs: Sequence[Run], columns: Columns, chosen: Collection[str] | None = None
) -> list[Cells]:
    """Returns the rows of runs: their `first` cells, the columns, and the numbers of seeds and of diverged seeds.

    For candidates, `chosen` names those that won, and a last column marks them.
    """
    made = []
    for cells, run in zip(first, runs, strict=True):
        seeds, diverged = str(len(run.summary["seeds"])), str(run.summary["diverged"])
        ends = {"seeds": seeds, "diverged": diverged}
        if chosen is not None:
            ends = {"diverged": f"{diverged} of {seeds}", "choice": "chosen" if run.name in chosen else ""}
        made.append(cells | {name: cell(run) for name, cell in columns.items()} | ends)
    return made
