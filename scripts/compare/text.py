"""The table of final values, for the terminal."""

from collections.abc import Iterator, Sequence

from experiments.core.errors import UsageError, printable
from experiments.core.record.summary import interval
from experiments.core.report.markdown import plus_minus
from experiments.core.report.paired import difference, significance
from scripts.compare.contents import metrics_of
from scripts.compare.groups import Group, first_reference

_HEADER = ("runs", "seeds", "diverged", "", "minus reference", "p", "state")


def tables(groups: Sequence[Group], metric: str | None = None, reference: str | None = None) -> list[str]:
    """The lines: a table for each metric that groups are told by, differences paired by seed.

    Args:
      groups: what is compared.
      metric: its name; by default the first that is measured of each group.
      reference: the label of the group that is subtracted, or the name of a run of it; or a part of these that no
        other group of the experiment has. By default the `first_reference` of each table.

    Raises:
      UsageError: no group has that metric, or none is called like the reference, or several are, or what is cannot be
        subtracted.
    """
    order = [entry["name"] for entry in metrics_of(groups) if entry["per_seed"]]
    if metric is not None and metric not in order:
        raise UsageError(f"--metric={metric} is not one of " + ", ".join(order))
    by_metric: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        name = next((name for name in ([metric] if metric else order) if name in group.series.metrics), None)
        if name:
            by_metric.setdefault((group.experiment, name), []).append(group)
    called = None if reference is None else _called(groups, reference)
    for group in called or ():
        if not group.done:
            raise UsageError(f"--reference={reference} is {group.label}, from which nothing is subtracted yet")
        if not any(group in members for members in by_metric.values()):
            raise UsageError(f"--reference={reference} is {group.label}, which has no {metric or ' or '.join(order)}")
    lines: list[str] = []
    for (experiment, name), members in by_metric.items():
        lines += [printable(f"{experiment}: {name}" if experiment else name), "", *_table(members, name, called), ""]
    lines.append("Mean ± half width of the 95 % t-interval over seeds; differences and p (t-test) are paired by seed.")
    return lines


def _called(groups: Sequence[Group], reference: str) -> list[Group]:
    """Those that are called so, or else those with it as a part of what they are called: one of each experiment."""
    names = [(group, [group.label, *(run.name for run in group.runs)]) for group in groups]
    found = [group for group, its in names if reference in its]
    found = found or [group for group, its in names if any(reference in name for name in its)]
    if not found:
        raise UsageError(f"--reference={reference} is part of no label or name of a run")
    experiments = [group.experiment for group in found]
    if len(set(experiments)) < len(found):
        labels = "; ".join(group.label for group in found)
        raise UsageError(f"--reference={reference} is part of several labels or names, and must be of one: {labels}")
    return found


def _table(groups: Sequence[Group], metric: str, called: Sequence[Group] | None) -> list[str]:
    """With differences from the group that is ``called`` as it was asked for, else from the `first_reference`."""
    subtracted = first_reference(groups) if called is None else next((one for one in groups if one in called), None)
    header = list(_HEADER)
    header[3] = metric
    return list(_aligned([header, *(_cells(group, metric, subtracted) for group in groups)]))


def _cells(group: Group, metric: str, reference: Group | None) -> list[str]:
    minus, p = "-", "-"
    if reference is group:
        minus = "reference"
    elif reference is not None and group.done:
        minus = plus_minus(difference(group.run, reference.run, metric), signed=True)
        value = significance(group.run, reference.run, metric)
        p = "-" if value is None else f"{value:.2g}"
    diverged = sum(run.summary["diverged"] for run in group.runs)
    final = plus_minus(interval(group.run.final(metric)))
    return [group.label, str(len(group.series.seeds)), str(diverged), final, minus, p, group.state]


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    rule = ["-" * width for width in widths]
    for row in [rows[0], rule, *rows[1:]]:
        cells = [
            cell.rjust(width) if 1 <= i <= 5 else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
