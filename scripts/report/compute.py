"""The table of results/README.md that counts what was trained: runs, networks and hours, by directory and hardware."""

import json
from collections import Counter
from pathlib import Path

from experiments.core.report import archive
from experiments.core.report.markdown import grid

_HEADER = ["results", "runs", "networks", "hours of CPUs", "hours of an H200"]


def blocks(directory: Path) -> dict[str, list[str]]:
    """Returns the lines of the table, by the name of its block: a row for each directory of results, and the total.

    A run trains as many networks as it has seeds. Its hours are those of its clock, beside other runs or alone.
    """
    counts: dict[str, Counter[str]] = {}
    for path in sorted(directory.rglob(archive.RUNS)):
        counts.setdefault(path.relative_to(directory).parts[0], Counter()).update(_count(path))
    counts["all"] = sum(counts.values(), Counter())
    cells = [
        [
            name,
            f"{count['runs']:,}",
            f"{count['networks']:,}",
            *(f"{count[kind] / 3600:.1f}" for kind in ("cpu", "gpu")),
        ]
        for name, count in counts.items()
    ]
    return {"compute": grid(_HEADER, cells, text=1)}


def _count(runs: Path) -> Counter[str]:
    """Returns runs, networks and seconds by platform in an archive."""
    count: Counter[str] = Counter()
    with runs.open() as lines:
        for record in map(json.loads, lines):
            platform = (record["environment"] or {}).get("devices", {}).get("platform", "cpu")
            seconds = {platform: record["summary"]["seconds"]}
            count.update({"runs": 1, "networks": len(record["summary"]["seeds"])} | seconds)
    return count
