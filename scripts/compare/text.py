"""The table of final values, for the terminal."""

import difflib
from collections.abc import Sequence

from experiments.core.errors import UsageError, printable
from experiments.core.record.summary import interval
from experiments.core.report.frame import difference
from experiments.core.report.markdown import plus_minus, signed
from experiments.core.report.results import Run
from scripts.compare.contents import metrics_of
from scripts.compare.groups import Group
from scripts.compare.series import is_per_seed


def tables(groups: Sequence[Group], reference: str | None = None) -> list[str]:
    """Returns the lines of a table for each experiment: the first metric of its groups, differences paired by seed.

    Args:
      groups: the groups to compare.
      reference: the label of the group to subtract, or the name of one of its runs; by default each one's baseline.

    Raises:
      UsageError: the reference is not the name of exactly one group, or is unfinished.
    """
    order = [name for name in metrics_of(groups) if is_per_seed(name)]
    called = None if reference is None else _called(groups, reference)
    members: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        if name := next((name for name in order if name in group.series.metrics), ""):
            members.setdefault((group.experiment, name), []).append(group)
    lines: list[str] = []
    for (experiment, name), its in members.items():
        baselines = {id(group.runs[0]): group for group in its}
        rows = [
            {"runs": group.label} | _cells(group, name, called or baselines.get(id(group.baseline))) for group in its
        ]
        lines += [printable(f"{experiment}: {name}" if experiment else name), "", *_aligned(rows), ""]
    lines.append("Mean ± half width of the 95 % t-interval over seeds; differences are paired by seed.")
    used = [group.baseline for group in groups]
    if called is None and any(group.done and group.baseline is None and group.runs[0] not in used for group in groups):
        lines.append(
            "Without a difference: no baseline of one data set, network and length; --reference=RUN names one."
        )
    return lines


def _aligned(rows: Sequence[dict[str, str]]) -> list[str]:
    """Returns the lines of a table; its first column is aligned to the left."""
    cells = [list(rows[0]), *([printable(cell) for cell in row.values()] for row in rows)]
    first, *widths = (max(map(len, column)) for column in zip(*cells, strict=True))
    return [
        "  ".join([label.ljust(first), *(cell.rjust(width) for cell, width in zip(its, widths, strict=True))])
        for label, *its in cells
    ]


def _called(groups: Sequence[Group], reference: str) -> Group:
    """Returns the group with this label, or with a run of this name."""
    matches = [group for group in groups if reference in (group.label, *(run.name for run in group.runs))]
    if len(matches) != 1:
        known = [name for group in groups for name in (group.label, *(run.name for run in group.runs))]
        names = "; ".join(difflib.get_close_matches(reference, known, 5) or known[:20])
        raise UsageError(f"--reference={reference} must be the label of one group or the name of a run of it: {names}")
    if not matches[0].done:
        raise UsageError(f"--reference={reference} is {matches[0].label}, from which nothing is subtracted yet")
    return matches[0]


def _cells(group: Group, metric: str, reference: Group | None) -> dict[str, str]:
    run = _run(group, metric)
    minus, to = "-", "-"
    if reference is not None and (reference is group or reference.experiment != group.experiment):
        reference = None
    if reference is not None and group.done and metric in reference.series.metrics:
        other = _run(reference, metric)
        minus, to = signed(difference(run, other, metric)), other.name
    diverged = sum(run.summary["diverged"] for run in group.runs)
    final = plus_minus(interval(run.final(metric)))
    cells = {"seeds": str(len(group.seeds)), "diverged": str(diverged), metric: final}
    return cells | {"difference": minus, "to": to, "state": group.state}


def _run(group: Group, metric: str) -> Run:
    """Returns all runs of a group as one run with a single metric."""
    return Run(group.runs[0].name, {}, [], {"seeds": group.seeds, "final": {metric: interval(group.final(metric))}})
