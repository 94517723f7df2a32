"""Files that are either wholly written or not there at all, on a local disk or in a bucket (`gs://`)."""

import contextlib
import fcntl
import hashlib
import io
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

# Buckets are read and written by gcsfs; importing TensorFlow for it would take seconds, in every process.
os.environ.setdefault("EPATH_USE_TF", "0")

import fsspec
import numpy as np
import orjson
from etils import epath

from experiments.core.errors import DamagedError, UsageError, first_line

_REMOTE = "gs://"
logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # which has tracebacks of what it raises as well


def is_remote(path: str | Path) -> bool:
    """Returns whether `path` lies in a bucket."""
    return str(path).startswith(_REMOTE)


def absolute(path: str | Path) -> Path:
    """`path` with the methods of `pathlib.Path`, absolute, a `~` expanded; `UsageError` for another kind of address."""
    if re.match(r"gs:|\w+://", str(path)) and not re.match(f"{_REMOTE}[^/]", str(path)):
        raise UsageError(f"--workdir={path} is neither a local path nor in a bucket, gs://BUCKET/...")
    return cast(Path, epath.Path(path)) if is_remote(path) else Path(os.path.expanduser(path)).absolute()


@contextlib.contextmanager
def reaching(path: Path, option: str = "--workdir") -> Iterator[None]:
    """Within it, that a bucket cannot be read or written is a `UsageError`, whatever its clients make of it."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        if not is_remote(path):
            raise
        raise UsageError(f"{option}={path} cannot be used: {type(error).__name__}: {first_line(error)}") from error


def files_below(directory: Path) -> list[str]:
    """The paths of all files below `directory`, relative to it, in order."""
    if not is_remote(directory):
        return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir())
    # One request; and afresh, as others write there, too.
    buckets, root = fsspec.core.url_to_fs(str(directory))
    buckets.invalidate_cache()
    return sorted(name.removeprefix(f"{root}/") for name in buckets.find(root))


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, a temporary one in the same directory, which takes the name `path` at the end.

    The rename is atomic and comes after the data has reached the disk, so that a kill at whatever moment leaves the old
    file or the new one, never a part of either. Buckets take objects whole only: theirs are in memory until then.
    """
    if is_remote(path):
        buffer = io.BytesIO()
        yield buffer
        path.write_bytes(buffer.getvalue())
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def lock(path: Path, *, wait: bool) -> TextIO:
    """Opens and locks a file until it is closed or this process ends; `BlockingIOError` if another has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes `content` to `path`, whole or not at all."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_compressed(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Writes an `.npz` file of `arrays` by name, compressed and atomically; returns its SHA-256."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    content = buffer.getvalue()
    write_atomically(path, content)
    return hashlib.sha256(content).hexdigest()


def read_object(path: Path, advice: str) -> dict[str, Any]:
    """The object in a JSON file; `DamagedError` with the `advice` what to do if it holds something else."""
    try:
        value = orjson.loads(path.read_bytes())  # which takes neither NaN nor infinities
    except ValueError as error:
        raise DamagedError(path, f"no JSON: {error}", advice) from error
    if not isinstance(value, dict):
        raise DamagedError(path, "no JSON object", advice)
    return value


def write_json(path: Path, value: Any) -> None:
    """Writes strict JSON (no NaN), readable by people, atomically."""
    write_atomically(path, json.dumps(value, indent=2, allow_nan=False) + "\n")
