"""Archives: the finished runs of a directory in two files, `runs.jsonl` and, where runs have arrays, `arrays.npz`.

A line of `runs.jsonl` is a run: its name below the directory, config, environment, summary, and all of its rows. The
rows are those of `metrics.jsonl` to the byte, so the SHA-256 in the summary is right for a workdir made of them again.
It is not checked when archives are read: git, or a bucket, keeps a sum of the file.
`arrays.npz` holds the arrays of all runs under RUN/FILE/ARRAY, such as `final-xent/examples/correct`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from experiments.core.errors import DamagedError
from experiments.core.record.files import write_atomically, write_compressed

RUNS, ARRAYS = "runs.jsonl", "arrays.npz"
_ADVICE = "put back a copy of it, or archive its runs again"

Record = dict[str, Any]  # a run as JSON: name, config, environment, summary and rows
Arrays = Mapping[str, Mapping[str, np.ndarray]]  # the arrays of a run by file (`examples`, `params`) and by name


def read(directory: Path) -> Iterator[tuple[Record, Arrays]]:
    """Yields the runs archived in `directory` itself, in the order of the file; none without an archive.

    Raises:
      DamagedError: a line is not a run, or the arrays cannot be read.
    """
    path = directory / RUNS
    if not path.is_file():
        return
    arrays = _read_arrays(directory / ARRAYS)
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            record = orjson.loads(line)
            name = record["name"]
            missing = {"config", "environment", "summary", "rows"} - record.keys()
        except (ValueError, TypeError, KeyError) as error:
            raise DamagedError(path, f"line {number} is not a run", _ADVICE) from error
        if missing:
            raise DamagedError(path, f"line {number} is a run without its {min(missing)}", _ADVICE)
        yield record, arrays.get(name, {})


def write(directory: Path, runs: Iterable[tuple[Record, Arrays]]) -> list[Path]:
    """Writes an archive of runs to `directory`; returns the paths of its files. The same runs give the same bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    arrays: dict[str, np.ndarray] = {}
    for record, files in sorted(runs, key=lambda run: run[0]["name"]):
        lines.append(json.dumps(record, allow_nan=False, separators=(",", ":")) + "\n")
        for file, its in files.items():
            arrays |= {f"{record['name']}/{file}/{name}": array for name, array in its.items()}
    written = [directory / RUNS]
    if arrays:
        written.append(directory / ARRAYS)
        write_compressed(written[-1], arrays)
    write_atomically(written[0], "".join(lines))
    return written


def _read_arrays(path: Path) -> dict[str, dict[str, dict[str, np.ndarray]]]:
    """Returns the arrays of `arrays.npz` by run, file and name."""
    by_run: dict[str, dict[str, dict[str, np.ndarray]]] = {}
    if path.is_file():
        try:
            with np.load(path, allow_pickle=False) as arrays:
                for key in arrays.files:
                    run, file, name = key.split("/", 2)
                    by_run.setdefault(run, {}).setdefault(file, {})[name] = arrays[key]
        except (ValueError, OSError, EOFError, KeyError) as error:
            raise DamagedError(path, f"no arrays of runs: {error}", _ADVICE) from error
    return by_run
