"""The table of final values, for the terminal."""

from collections.abc import Iterator, Sequence

import numpy as np

from experiments.core.errors import UsageError, printable
from experiments.core.record.summary import interval
from experiments.core.report.markdown import plus_minus, signed
from experiments.core.report.paired import difference, significance
from experiments.core.report.results import Run
from scripts.compare.contents import metrics_of
from scripts.compare.groups import Group
from scripts.compare.series import is_per_seed


def tables(groups: Sequence[Group], metric: str | None = None, reference: str | None = None) -> list[str]:
    """The lines: a table for each experiment and metric, with differences paired by seed.

    Args:
      groups: what is compared.
      metric: its name; by default the first that is measured of each group.
      reference: the label of the group that is subtracted, or the name of a run of it; or a part of these that no
        other group of the experiment has. By default the baseline of each row.

    Raises:
      UsageError: no group has that metric, or none is called like the reference, or several are, or it is unfinished or
        lacks the metric.
    """
    order = [name for name in metrics_of(groups) if is_per_seed(name)]
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
        rows = [_cells(group, name, _reference(group, members, called)) for group in members]
        header = ["runs", "seeds", "diverged", name, "difference", "p", "to", "state"]
        lines += [f"{experiment}: {name}" if experiment else name, "", *_aligned([header, *rows]), ""]
    lines.append("Mean ± half width of the 95 % t-interval over seeds; differences and p (t-test) are paired by seed.")
    return [printable(line) for line in lines]


def _called(groups: Sequence[Group], reference: str) -> list[Group]:
    """Those that are called so, or else those with it as a part of what they are called: one of each experiment."""
    names = [(group, [group.label, *(run.name for run in group.runs)]) for group in groups]
    found = [group for group, its in names if reference in its]
    found = found or [group for group, its in names if any(reference in name for name in its)]
    if not found:
        raise UsageError(f"--reference={reference} is part of no label or name of a run")
    if len({group.experiment for group in found}) < len(found):
        labels = "; ".join(group.label for group in found)
        raise UsageError(f"--reference={reference} is part of several labels or names, and must be of one: {labels}")
    return found


def _reference(group: Group, members: Sequence[Group], called: Sequence[Group] | None) -> Group | None:
    """The one that was asked for, or else the group's baseline."""
    return next((one for one in members if (one.runs[0] is group.baseline if called is None else one in called)), None)


def _cells(group: Group, metric: str, reference: Group | None) -> list[str]:
    minus, p, to = "-", "-", "-"
    run = _run(group, metric)
    if reference is not None and reference is not group and group.done:
        other = _run(reference, metric)
        minus, to = signed(difference(run, other, metric)), other.name
        value = significance(run, other, metric)
        p = "-" if value is None else f"{value:.2g}"
    final = plus_minus(interval(run.final(metric)))
    diverged = sum(run.summary["diverged"] for run in group.runs)
    return [group.label, str(len(group.series.seeds)), str(diverged), final, minus, p, to, group.state]


def _run(group: Group, metric: str) -> Run:
    """All runs of a group as one, with a metric alone."""
    values = [None if np.isnan(value) else value for value in group.series.final[metric].tolist()]
    return Run(group.runs[0].name, {}, [], {"seeds": group.series.seeds, "final": {metric: interval(values)}})


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in [rows[0], ["-" * width for width in widths], *rows[1:]]:
        cells = (
            cell.rjust(width) if 1 <= i <= 5 else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
