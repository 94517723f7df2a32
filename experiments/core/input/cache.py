"""Decoded arrays kept on disk: decoding MNIST takes eight seconds, reading it back a tenth of one."""

import contextlib
import hashlib
import os
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from experiments.core.input.stream import Arrays
from experiments.core.record.files import lock, replacing

_FORMAT = 5  # to be raised when what `make` returns changes meaning


def load_or_make(name: str, version: str, files: Iterable[Path], make: Callable[[], Arrays]) -> Arrays:
    """The arrays of `make()`, which depend on `version` and the contents of `files`, from the cache if there.

    Sizes and times would not do: formats pad their files, and programs that copy them keep times.
    """
    digest = hashlib.sha256(f"{_FORMAT} {version}".encode())
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return kept(directory() / f"{name.replace('/', '-')}-{digest.hexdigest()[:16]}.npz", name, make)


def kept(path: Path, name: str, make: Callable[[], Arrays]) -> Arrays:
    """The arrays in the `.npz` file at `path`, which are made, and written whole, where there are none.

    The format has a checksum of each array: damaged ones are made again. A file that cannot be written is reported on
    stderr and done without. Processes of this machine that want one `name` wait for each other.
    """
    with one_process(name):
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return dict(arrays)
        except FileNotFoundError:
            pass
        # RuntimeError: a byte that is not as it was may say that the file is encrypted, or of a later format.
        except (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile) as error:
            print(f"ignoring the unreadable cache {path}: {error}", file=sys.stderr)
        made = make()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary:
                np.savez(temporary, allow_pickle=False, **made)
        except OSError as error:
            print(f"not caching in {path}: {error}", file=sys.stderr)
        return made


@contextlib.contextmanager
def one_process(name: str) -> Iterator[None]:
    """Waits until no other process of this machine is in here with this name; where there are no locks, for none."""
    path = directory() / f".{name.replace('/', '-')}.lock"
    with contextlib.ExitStack() as opened:
        with contextlib.suppress(OSError):
            opened.enter_context(lock(path, wait=True))
        yield


def directory() -> Path:
    """The directory of all that can be fetched or made again: `$XDG_CACHE_HOME/sparse-topk`, else below ~/.cache."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "sparse-topk"
