"""Workdirs in a bucket: what a comparison reads of them, copied to this machine."""

import logging
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec

_READ = (
    "config.json",
    "environment.json",
    "metrics.jsonl",
    "summary.json",
    "runs.jsonl",
    "arrays.npz",
    "examples.npz",
)


class NotFoundError(Exception):
    """A place that cannot be read, with the reason as its message."""


@contextmanager
def local(place: str) -> Iterator[Path]:
    """Yields the directory of a place; for a URL (`gs://bucket/runs`) a copy, which is removed at the end.

    Raises:
      NotFoundError: there is no such directory, or the storage cannot be reached.
    """
    if "://" not in place:
        if not Path(place).is_dir():
            raise NotFoundError("is no directory")
        yield Path(place)
        return
    if place.startswith("gs:///"):  # an unset variable: the first directory would be taken for a bucket
        raise NotFoundError("names no bucket")
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # errors are reported once, below
    with tempfile.TemporaryDirectory(prefix="compare-") as directory:
        try:
            filesystem, root = fsspec.core.url_to_fs(place)
            count = _copy(filesystem, root, Path(directory))
        except Exception as error:  # each storage has exceptions of its own
            raise NotFoundError(f"cannot be read: {type(error).__name__}: {error}") from error
        if not count:
            raise NotFoundError("holds no run")
        yield Path(directory)


def _copy(filesystem: Any, root: str, directory: Path) -> int:
    """Copies the files of all workdirs and archives at or below `root`; returns their number."""
    root = root.rstrip("/")
    files = [path for path in filesystem.find(root) if path.rsplit("/", 1)[-1] in _READ]
    targets = [directory / path.removeprefix(root).lstrip("/") for path in files]
    for target in targets:
        target.parent.mkdir(parents=True, exist_ok=True)
    if files:
        print(f"copying {len(files)} files from {root}", file=sys.stderr, flush=True)
        filesystem.get(files, [str(target) for target in targets])
    return len(files)
