"""The rows of a run: one strict JSON object per line, one line per epoch or `config.eval_every` steps.

    {"epoch": 3, "step": 1404, "seconds": 1.93, "diverged": [false, false],
     "train_loss": [0.31, 0.29], "test_error": [8.1, 7.9], "train_density": [0.1, 0.1], ...}

Every metric is a list with one value per seed, in the order of the config's seeds, or an object of such lists. `null`
stands for what is not finite or was not measured: every metric of a seed that diverged, and means over the steps since
the last row (`train_loss` and so on) in the row of step 0. `seconds` are those of training since the beginning. Rows of
a run whose length is given in steps also have the learning rate of their last step, and what the steps cost:

    "learning_rate": 0.003, "performance": {"step_seconds": 0.21, "images_per_second": 2430.0, ...}
"""

import hashlib
import importlib.util
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from experiments.core.config import leaves
from experiments.core.errors import DamagedError
from experiments.core.record.files import is_remote, write_atomically

Row = dict[str, Any]

ADVICE = "put back a copy of it, or train in another --workdir"


def per_seed(metrics: Mapping[str, Any], diverged: np.ndarray) -> Row:
    """Arrays [S] by name, possibly nested, as lists of S numbers, or None where not finite."""
    return {
        name: per_seed(value, diverged)
        if isinstance(value, Mapping)
        else [
            # Through str: a float32 0.1 is written 0.1, not 0.10000000149011612.
            None if bad or not math.isfinite(number) else float(str(number))
            for bad, number in zip(diverged, np.asarray(value), strict=True)
        ]
        for name, value in metrics.items()
    }


def flatten(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """`("train_density_per_layer/1", [...])` and so on."""
    return leaves(row, prefix="", between="/")


def lines(path: Path) -> list[bytes]:
    """The lines of a metrics file that were written whole: a kill may have cut the last one short."""
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


def read(path: Path, until: float = math.inf) -> list[Row]:
    """The rows of a metrics file up to that of step `until`; what comes after it may be anything.

    Raises `DamagedError` if a line holds something else, or its row is of no later step than the one before.
    """
    rows: list[Row] = []
    for number, line in enumerate(lines(path), start=1):
        last = rows[-1]["step"] if rows else -1
        if last >= until:
            break
        try:
            row = orjson.loads(line)  # several times faster than json: rows come in millions
            later = row["step"] > last
        except (ValueError, TypeError, KeyError) as error:
            raise DamagedError(path, f"line {number} is no row", ADVICE) from error
        if not later:
            raise DamagedError(path, f"line {number} is of step {row['step']}, after one of step {last}", ADVICE)
        rows.append(row)
    return rows


def read_until(path: Path, step: int, config: Mapping[str, Any]) -> list[Row]:
    """The rows of a run of `config` up to that of `step`; `DamagedError` if that or one before it is missing."""
    rows = read(path, step)
    require_complete(path, rows, config)
    if not rows or rows[-1]["step"] != step:
        raise DamagedError(path, f"it has no row of step {step}", ADVICE)
    return rows


def require_complete(path: Path, rows: Sequence[Row], config: Mapping[str, Any]) -> None:
    """Raises `DamagedError` if a row that a run of `config` writes is missing between the first and the last."""
    by_steps = config.get("steps") is not None
    unit, every, total = ("step", config["eval_every"], config["steps"]) if by_steps else ("epoch", 1, config["epochs"])
    for number, row in enumerate(rows):
        due = min(number * every, total)
        if row[unit] != due:
            how = f"line {number + 1} is of {unit} {row[unit]}, where the row of {unit} {due} has its place"
            raise DamagedError(path, how, ADVICE)


def require_sha256(path: Path, sha256: Any) -> None:
    """Raises `DamagedError` if the whole file is another, or has been changed."""
    if hashlib.sha256(path.read_bytes() if path.exists() else b"").hexdigest() != sha256:
        raise DamagedError(path, "its SHA-256 is not the one in summary.json", ADVICE)


def sha256_of(rows: Iterable[Row]) -> str:
    """Returns the SHA-256 of the file that has these rows."""
    return hashlib.sha256("".join(map(_line, rows)).encode()).hexdigest()


def tensorboard(directory: Path, rows: Sequence[Row] = ()) -> Any:
    """A writer of clu for TensorBoard's events; None, which it says, where TensorFlow is not installed.

    What a killed launch has left of steps after those of the `rows`, which come again, goes.
    """
    if importlib.util.find_spec("tensorflow") is None:
        print("config.tensorboard is on, but TensorFlow (make install-data) is not installed: metrics.jsonl only")
        return None
    from clu import metric_writers  # only here: it imports TensorFlow, which takes eight seconds
    from tensorboard.compat.proto import event_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    directory.mkdir(parents=True, exist_ok=True)
    first = rows[-1]["step"] + 1 if rows else 0
    for path in directory.glob("events.out.tfevents.*"):
        _cut(path, first)
    # A TensorBoard that has shown them forgets them at this mark. It reads files in the order of their names.
    with (directory / f"events.out.tfevents.{int(time.time()):010d}.-start").open("wb") as mark:
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        for event in (event_pb2.Event(file_version="brain.Event:2"), event_pb2.Event(step=first, session_log=start)):
            RecordWriter(mark).write(event.SerializeToString())
    return metric_writers.SummaryWriter(str(directory))


def _cut(path: Path, step: int) -> None:
    """Ends a file of events before those of `step`; it stays, as a TensorBoard may be reading it."""
    from tensorboard.compat.proto import event_pb2

    content, end = path.read_bytes(), 0
    while end + 12 <= len(content):  # each has its length and two checksums around it
        after = end + 16 + int.from_bytes(content[end : end + 8], "little")
        if after > len(content) or (end and event_pb2.Event.FromString(content[end + 12 : after - 4]).step >= step):
            break  # the first says the version of the file
        end = after
    path.write_bytes(content[:end])


class Writer:
    """Appends rows to a metrics file that already holds `rows`, and to TensorBoard if asked."""

    def __init__(self, path: Path | None, rows: list[Row], board: Any = None):
        """Begins the file at `path` with `rows`; without a path they stay in memory. `board` is of `tensorboard`."""
        self.rows, self._path, self._board = rows, path, board
        # Rows that a killed run wrote after its last checkpoint go; they will be computed again.
        self._write_all()
        self._file = path.open("a") if path and not is_remote(path) else None

    def append(self, row: Row) -> None:
        """Adds a row and waits until it is on the disk: checkpoints count on the rows before them."""
        self.rows.append(row)
        if self._file:
            self._file.write(_line(row))
            self._file.flush()
            os.fsync(self._file.fileno())
        else:
            self._write_all()  # to an object in a bucket nothing can be appended
        if self._board:
            self._board.write_scalars(row["step"], _means(row))
            self._board.flush()

    def _write_all(self) -> None:
        if self._path:
            write_atomically(self._path, "".join(map(_line, self.rows)))

    def close(self) -> None:
        """Closes the file."""
        if self._file:
            self._file.close()


def _line(row: Row) -> str:
    return json.dumps(row, allow_nan=False) + "\n"


def _means(row: Row) -> dict[str, float]:
    """Means over the seeds that have a value."""
    lists = {name: values if isinstance(values, list) else [values] for name, values in flatten(row)}
    numbers = {name: [value for value in values if value is not None] for name, values in lists.items()}
    return {name: float(np.mean(values)) for name, values in numbers.items() if values}
