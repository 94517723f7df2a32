"""The table of results/README.md: committed runs that were trained again, with newer packages."""

from pathlib import Path

from experiments.core.record.summary import interval
from experiments.core.report import results
from experiments.core.report.frame import difference
from experiments.core.report.markdown import grid, plus_minus, signed
from experiments.core.suite import plan


def blocks(directory: Path) -> dict[str, list[str]]:
    """Returns the lines of the table, by the name of its block, from the runs below `again` in a directory of results.

    They have the names of the runs that they repeat. A row shows the first metric that their suite prints; runs of one
    seed have no interval, and no row.
    """
    cells = []
    for run in (run for run in results.load(directory / "again")[0] if len(run.summary["seeds"]) > 1):
        folder, _, name = run.name.partition("/")
        (first,) = (candidate for candidate in results.load(directory / folder)[0] if candidate.name == name)
        metric = next(
            metric for metric in plan.find(f"experiments.{run.experiment}.suite").shown if metric in run.finals
        )
        ends = (plus_minus(interval(one.final(metric))) for one in (first, run))
        cells.append([f"{run.name}: {metric}", *ends, signed(difference(run, first, metric))])
    return {"runs trained again": grid(["run and metric", "committed", "again", "difference"], cells, text=1)}
