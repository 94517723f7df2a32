"""Recomputes the tables of results from the archived runs: `python -m scripts.numbers [DIR...]`.

It shares no code with the reports; it takes rows of metrics, NumPy and Student's t. In each row of a `table.md`, all
intervals must belong to one run: to its metrics at the end, to its differences from other runs at the same seeds (or
from one number, where nothing is random), or to the epochs until it was as good as another. A line of differences alone
belongs to two runs; each interval of an overview must be in some such row. A test checks that pages show only intervals
of tables. Numbers of single seeds are not checked.
"""

import argparse
import dataclasses
import functools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from experiments.core import console

RESULTS = Path(__file__).resolve().parents[1] / "results"
_INTERVAL = re.compile(r"[+-]?\d+\.\d\d ± \d+\.\d\d")
_COMPARED = re.compile("error|accuracy|precision|recovery|loss|stability")
Numbers = Sequence[float | None]  # a value for each seed, None if it has none


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A run of an archive: its seeds, its metrics at the end by name, and all of its rows."""

    seeds: list[int]
    metrics: dict[str, Numbers]
    rows: list[dict[str, Any]]

    @functools.cached_property
    def own(self) -> set[str]:
        """The intervals of its metrics, as texts."""
        return {text for values in self.metrics.values() for text in _texts(values)}

    @functools.cache  # noqa: B019 - runs live as long as the process
    def compared(self, other: "Run") -> set[str]:
        """Returns the intervals of its comparisons with another run, as texts."""
        return {text for values in _compared(self, other) for text in _texts(values)}


def main(arguments: Sequence[str]) -> int:
    """Checks the tables of the directories; returns 1 if a row belongs to no run."""
    parser = argparse.ArgumentParser(prog="python -m scripts.numbers", description=(__doc__ or "").split(":")[0])
    parser.add_argument("directories", nargs="*", type=Path, help="directories with a table.md (default: all results)")
    directories = parser.parse_args(arguments).directories
    wrong = 0
    for directory in directories or sorted(path.parent for path in RESULTS.glob("*/table.md")):
        rows = [row for line in (directory / "table.md").read_text().splitlines() if (row := intervals(line))]
        strange = unexplained(rows, load(directory))
        wrong += len(strange)
        print(f"{directory.name}: {sum(map(len, rows))} intervals in {len(rows)} rows, {len(strange)} rows of no run")
        for texts in strange:
            print("  no run has " + ", ".join(texts))
    return int(bool(wrong))


def load(directory: Path) -> list[Run]:
    """Returns all runs that are archived below a directory, and as one those that differ in their seeds alone."""
    archives = [path.read_bytes() for path in sorted(directory.rglob("runs.jsonl"))]
    alike: dict[str, list[Run]] = {}
    for record in (json.loads(line) for archive in archives for line in archive.splitlines()):
        run = Run(record["summary"]["seeds"], _metrics(record["rows"]), record["rows"])
        alike.setdefault(json.dumps(record["config"] | {"seeds": None}, sort_keys=True), []).append(run)
    groups = [members for members in alike.values() if len(members) > 1]
    return [run for members in alike.values() for run in members] + [_joined(members) for members in groups]


def _joined(members: Sequence[Run]) -> Run:
    shared = set.intersection(*(set(run.metrics) for run in members))
    metrics: dict[str, Numbers] = {name: [value for run in members for value in run.metrics[name]] for name in shared}
    return Run([seed for run in members for seed in run.seeds], metrics, [])


def intervals(text: str) -> list[str]:
    """Returns the intervals of a line, such as `12.74 ± 1.15`, without the plus of a positive difference."""
    return [interval.removeprefix("+") for interval in _INTERVAL.findall(text)]


def unexplained(rows: Sequence[Sequence[str]], runs: Sequence[Run]) -> list[Sequence[str]]:
    """Returns the rows of intervals that belong to no run, to no difference of two, and to no other rows."""
    left = [row for row in rows if not any(_gives(run, row, runs) for run in runs)]
    known = {text for row in rows if row not in left for text in row}
    left = [row for row in left if not known.issuperset(row)]
    return [row for row in left if not any(run.compared(other).issuperset(row) for run in runs for other in runs)]


def _gives(run: Run, row: Sequence[str], runs: Sequence[Run]) -> bool:
    left = set(row) - run.own
    if left == set(row):
        return False
    for other in runs:
        if not left:
            break
        if left & run.compared(other):
            left -= run.compared(other) | other.own  # a row may also show the other run's own intervals
    return not left


def _metrics(rows: Sequence[Mapping[str, Any]]) -> dict[str, Numbers]:
    """Returns the metrics of the last row, their means over blocks, and 100 minus each error.

    Stability is a mean over all rows but the first, which has none.
    """
    metrics = dict(_leaves(rows[-1]))
    for name in (name for name in metrics if "stability" in name):
        metrics[name] = [
            _mean(of_seed) for of_seed in zip(*(dict(_leaves(row))[name] for row in rows[1:]), strict=True)
        ]
    blocks: dict[str, list[Numbers]] = {}
    for name, values in metrics.items():
        blocks.setdefault(re.sub(r"/block_\d+", " of blocks", name), []).append(values)
    means = {name: [_mean(of_seed) for of_seed in zip(*group, strict=True)] for name, group in blocks.items()}
    rest = {f"100 - {name}": [_minus(100.0, v) for v in values] for name, values in metrics.items() if "error" in name}
    return metrics | means | rest


def _leaves(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Numbers]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}/")
        elif isinstance(value, list):
            yield prefix + name, value


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _minus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _compared(run: Run, other: Run) -> Iterator[Numbers]:
    """Yields two runs' differences at the same seeds, and the first epochs with the other's error at most."""
    pairs = [(run.seeds.index(seed), other.seeds.index(seed)) for seed in run.seeds if seed in other.seeds]
    if len(other.seeds) == 1:
        pairs = [(i, 0) for i in range(len(run.seeds))]
    names = [(name, name) for name in run.metrics.keys() & other.metrics.keys() if _COMPARED.search(name)]
    hardened = "hardened_error" in run.metrics and "test_error" in other.metrics
    for mine, its in [*names, *[("hardened_error", "test_error")] * hardened]:  # the dense network is not hardened
        yield [_minus(run.metrics[mine][i], other.metrics[its][j]) for i, j in pairs]
    if hardened:
        yield [_first(run.rows, i, other.metrics["test_error"][j]) for i, j in pairs]


def _first(rows: Sequence[Mapping[str, Any]], seed: int, end: float | None) -> float | None:
    errors = ((row["epoch"], row["hardened_error"][seed]) for row in rows)
    return next((epoch for epoch, error in errors if None not in (error, end) and error <= end), None)


def _texts(values: Numbers) -> Iterator[str]:
    """Yields the interval of the values as text, also of shares as percentages; nothing for a single value."""
    known = [value for value in values if value is not None]
    if (number := len(known)) > 1:
        mean = float(np.mean(known))  # which rounds otherwise than sum(known) / number
        half = _student(number - 1) * math.dist(known, [mean] * number) / math.sqrt(number * (number - 1))
        yield from (f"{scale * mean:.2f} ± {scale * half:.2f}" for scale in (1, 100))


@functools.cache
def _student(degrees: int) -> float:
    return float(stats.t.ppf(0.975, degrees))


if __name__ == "__main__":
    console.run(main)
