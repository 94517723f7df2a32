"""JSON files with a section for each measurement on a machine or chip; several processes may write to one file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.core.record.files import lock, read_object, write_json

_ADVICE = "restore it (git checkout) or remove it, to measure anew"


def read(path: Path, *place: str) -> dict[str, Any] | None:
    """Returns the section at a place, such as `("steps", "vit-v6e-8")`, or the whole file; None if there is none.

    Raises:
      DamagedError: the file is not JSON.
    """
    found: dict[str, Any] | None = read_object(path, _ADVICE) if path.exists() else None
    for key in place:
        found = (found or {}).get(key)
    return found


def write(path: Path, document: Mapping[str, Any], *place: str) -> None:
    """Writes a section as a whole or not at all, and leaves the others in the file as they are.

    Raises:
      DamagedError: the file is not JSON; nothing is written.
    """
    with lock(path.parent / ".lock", wait=True):
        whole = read(path) or {}
        within = whole
        for key in place[:-1]:
            within = within.setdefault(key, {})
        within[place[-1]] = document
        write_json(path, whole)


def remove(path: Path, section: str) -> None:
    """Removes a section, if it is there."""
    with lock(path.parent / ".lock", wait=True):
        whole = read(path) or {}
        if whole.pop(section, None) is not None:
            write_json(path, whole)
