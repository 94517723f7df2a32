"""Files that are either wholly written or not there at all."""

import json
import os
from pathlib import Path
from typing import Any


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes `content` to `path` through a temporary file in the same directory.

    The rename is atomic and comes after the data has reached the disk, so whoever dies at
    whatever moment leaves the old file or the new one, never a part of either.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    data = content.encode() if isinstance(content, str) else content
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def write_json(path: Path, value: Any) -> None:
    """Writes strict JSON (no NaN), readable by people, atomically."""
    write_atomically(path, json.dumps(value, indent=2, allow_nan=False) + "\n")
