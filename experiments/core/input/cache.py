"""Decoded arrays kept on disk: decoding MNIST takes eight seconds, reading it back a tenth of one."""

import hashlib
import io
import os
import sys
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from experiments.core.record.files import write_atomically

_FORMAT = 3  # to be raised when what `make` returns changes meaning


def load_or_make(
    name: str, version: str, files: Iterable[Path], make: Callable[[], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """The arrays of `make()`, which depend on `version` and `files` alone, from the cache if there.

    A file counts as unchanged while its path, size and time of modification are. A cache that
    cannot be read or written is reported on stderr and done without.
    """
    path = directory() / f"{name.replace('/', '-')}-{_digest(version, files)}.npz"
    if path.exists():
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return dict(arrays)
        # RuntimeError: a byte that is not as it was may say that the file is encrypted, or of a later format.
        except (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile) as error:
            print(f"ignoring the unreadable cache {path}: {error}", file=sys.stderr)
    arrays = make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        write_atomically(path, buffer.getvalue())
    except OSError as error:
        print(f"not caching in {path}: {error}", file=sys.stderr)
    return arrays


def directory() -> Path:
    """Where everything that can be fetched or made again lies: `$XDG_CACHE_HOME/sparse-topk`, else below ~/.cache."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "sparse-topk"


def _digest(version: str, files: Iterable[Path]) -> str:
    digest = hashlib.sha256(f"{_FORMAT} {version}".encode())
    for file in files:
        stat = file.stat()
        digest.update(f"{file.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]
