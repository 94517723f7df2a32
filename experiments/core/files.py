"""Files that are either wholly written or not there at all."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, a temporary one in the same directory, which takes the name `path` at the end.

    The rename is atomic and comes after the data has reached the disk, so whoever dies at
    whatever moment leaves the old file or the new one, never a part of either.
    """
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
