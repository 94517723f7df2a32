"""The table of final values, for the terminal."""

from collections.abc import Sequence

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
      reference: the label of the group that is subtracted, or the name of a run of it; or a part of these that no other
        group has. By default the baseline of each row.

    Raises:
      UsageError: no group has that metric, or none is called like the reference, or several are, or it is unfinished or
        lacks the metric.
    """
    order = [name for name in metrics_of(groups) if is_per_seed(name)]
    if metric is not None and metric not in order:
        raise UsageError(f"--metric={metric} is not one of " + ", ".join(order))
    called = None if reference is None else _called(groups, reference)
    members: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        names = [name for name in ([metric] if metric else order) if name in group.series.metrics]
        if names:
            members.setdefault((group.experiment, names[0]), []).append(group)
        elif group is called:
            raise UsageError(f"--reference={reference} is {group.label}, which has no {metric}")
    lines: list[str] = []
    for (experiment, name), its in members.items():
        baselines = {id(one.runs[0]): one for one in its}
        rows = [{"runs": one.label} | _cells(one, name, called or baselines.get(id(one.baseline))) for one in its]
        lines += [printable(f"{experiment}: {name}" if experiment else name), "", *_aligned(rows), ""]
    lines.append("Mean ± half width of the 95 % t-interval over seeds; differences and p (t-test) are paired by seed.")
    return lines


def _aligned(rows: Sequence[dict[str, str]]) -> list[str]:
    """The lines of a table, the first column to the left."""
    cells = [list(rows[0]), *([printable(cell) for cell in row.values()] for row in rows)]
    first, *widths = (max(map(len, column)) for column in zip(*cells, strict=True))
    return [
        "  ".join([label.ljust(first), *(cell.rjust(width) for cell, width in zip(its, widths, strict=True))])
        for label, *its in cells
    ]


def _called(groups: Sequence[Group], reference: str) -> Group:
    """The group that is called so, or else the one with it as a part of what it is called."""
    names = [(group, [group.label, *(run.name for run in group.runs)]) for group in groups]
    found = [group for group, its in names if reference in its]
    found = found or [group for group, its in names if any(reference in name for name in its)]
    labels = "; ".join(group.label for group in found) or "none"
    if len(found) != 1:
        raise UsageError(f"--reference={reference} must be part of the label or name of one group, and is of {labels}")
    if not found[0].done:
        raise UsageError(f"--reference={reference} is {labels}, from which nothing is subtracted yet")
    return found[0]


def _cells(group: Group, metric: str, reference: Group | None) -> dict[str, str]:
    run = _run(group, metric)
    minus, p, to = "-", "-", "-"
    if reference is not None and reference is not group and group.done and metric in reference.series.metrics:
        other = _run(reference, metric)
        minus, to = signed(difference(run, other, metric)), other.name
        value = significance(run, other, metric)
        p = "-" if value is None else f"{value:.2g}"
    diverged = sum(run.summary["diverged"] for run in group.runs)
    final = plus_minus(interval(run.final(metric)))
    cells = {"seeds": str(len(group.seeds)), "diverged": str(diverged), metric: final}
    return cells | {"difference": minus, "p": p, "to": to, "state": group.state}


def _run(group: Group, metric: str) -> Run:
    """All runs of a group as one, with a metric alone."""
    return Run(group.runs[0].name, {}, [], {"seeds": group.seeds, "final": {metric: interval(group.final(metric))}})
