"""The SHA-256 of every file below a directory, kept beside them as `sha256sum --check` reads it.

Checkpoints are verified by them: of what orbax saves, the format has checksums of a part alone (of its indices; neither
of the numbers nor of the JSON beside them), and a number that has changed is a number still.
"""

import errno
import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from experiments.core.record.files import files_below, write_atomically

NAME = "SHA256SUMS"
_THREADS = 8  # hashing a file takes one of them; a bucket is waited for


def write(directory: Path) -> None:
    """Writes the sums of all files below `directory`, which are then complete."""
    names = [name for name in files_below(directory) if name != NAME]
    lines = [f"{sum_}  {name}\n" for name, sum_ in zip(names, _sums(directory, names), strict=True)]
    write_atomically(directory / NAME, "".join(lines))


def damage(directory: Path) -> str | None:
    """What is wrong with the files below `directory`, in a few words; None: all are as they were.

    A file that is not listed is damage, too: it may be the list that has lost a line.
    """
    try:
        text = (directory / NAME).read_bytes().decode()
        listed = {name: sum_ for sum_, name in (line.split("  ", 1) for line in text.splitlines())}
    except (FileNotFoundError, NotADirectoryError):
        return f"it has no {NAME}"
    except ValueError:
        return f"{NAME} holds something else"
    except OSError as error:
        return _unreadable(NAME, error)
    found = [name for name in files_below(directory) if name != NAME]
    if missing := sorted(listed.keys() - set(found)):
        return f"{missing[0]} is missing"
    if more := sorted(set(found) - listed.keys()):
        return f"{more[0]} is not in {NAME}"
    try:
        for name, sum_ in zip(found, _sums(directory, found), strict=True):
            if sum_ != listed[name]:
                return f"{name} is not what was saved"
    except OSError as error:
        return _unreadable(str(error.filename), error)
    return None if listed else "it holds nothing"


def _sums(directory: Path, names: Iterable[str]) -> list[str]:
    def of(name: str) -> str:
        with (directory / name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(of, names))


def _unreadable(name: str, error: OSError) -> str:
    """Of a disk that cannot read a file any more; any other error, as of a network, says nothing of the file."""
    if error.errno != errno.EIO:
        raise error
    return f"{name} cannot be read"
