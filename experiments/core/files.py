"""Files that are either wholly written or not there at all, on a local disk or in a bucket (`gs://`)."""

import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

# Buckets are read and written by gcsfs; importing TensorFlow for it would take seconds, in every process.
os.environ.setdefault("EPATH_USE_TF", "0")

from etils import epath

_REMOTE = "gs://"


def is_remote(path: str | Path) -> bool:
    """Whether `path` lies in a bucket."""
    return str(path).startswith(_REMOTE)


def absolute(path: str | Path) -> Path:
    """`path` as an object with the methods of `pathlib.Path`: absolute where it is local, of etils where it is not."""
    return cast(Path, epath.Path(path)) if is_remote(path) else Path(path).absolute()


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, a temporary one in the same directory, which takes the name `path` at the end.

    The rename is atomic and comes after the data has reached the disk, so whoever dies at
    whatever moment leaves the old file or the new one, never a part of either. A bucket takes
    objects whole only: there, the file is in memory until it is uploaded.
    """
    if is_remote(path):
        buffer = io.BytesIO()
        yield buffer
        path.write_bytes(buffer.getvalue())
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes `content` to `path`, whole or not at all."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, value: Any) -> None:
    """Writes strict JSON (no NaN), readable by people, atomically."""
    write_atomically(path, json.dumps(value, indent=2, allow_nan=False) + "\n")
