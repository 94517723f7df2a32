"""Describes a record: its code, versions and slice."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jax import stages

from experiments.core.record.environment import Launch, describe
from scripts.aot.hardware import Slice

DIRECTORY = Path("results/accelerators")
_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = {"tpu": ("jax", "jaxlib", "libtpu"), "cuda": ("jax", "jaxlib", "jax-cuda13-plugin")}


def compilers(slice_: Slice) -> dict[str, str | None]:
    """The versions that a program depends on."""
    return {name: _version(name) for name in _PACKAGES[slice_.device.platform]}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def digest(*packages: str) -> str:
    """Of the Python files of these directories: the same code has the same one, whatever else is committed."""
    total = hashlib.sha256()
    for package in packages:
        for path in sorted((_ROOT / package).rglob("*.py")):
            total.update(f"{path.relative_to(_ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()[:16]


def program(lowered: stages.Lowered) -> str:
    """Of a program as the compiler is given it: it is the same after a change of the code that does not concern it."""
    return hashlib.sha256(lowered.as_text().encode()).hexdigest()[:16]


def header(slice_: Slice, command: Sequence[str], code: str) -> dict[str, Any]:
    """What every record begins with."""
    environment = describe(Launch(command=command))
    device = slice_.device
    return {
        "type": slice_.type,
        "topology": slice_.topology,
        "devices": slice_.count,
        "code": code,
        "compilers": compilers(slice_),
        "git": environment["git"],
        "started": environment["started"],
        "command": environment["command"],
        "rates": {
            "device": device.name,
            "bfloat16_flops": device.flops,
            "memory_bytes": device.memory,
            "memory_bandwidth": device.memory_bandwidth,
            "interconnect_bandwidth": device.interconnect,
            "source": device.source,
        },
    }


def is_of(document: dict[str, Any] | None, slice_: Slice, code: str) -> bool:
    """Whether a record, or a row of one, is of this code and these versions."""
    return is_by(document, slice_) and document is not None and document.get("code") == code


def is_by(document: dict[str, Any] | None, slice_: Slice) -> bool:
    """Whether it is of these versions, and perhaps of other code."""
    return document is not None and document.get("compilers") == compilers(slice_)


def commit(document: dict[str, Any]) -> str:
    """The code that a record is of, as tables name it."""
    return f"`{document['git']['commit'][:7]}`" + (" and changes" if document["git"]["dirty"] else "")


def path_of(results: Path, slice_: Slice) -> Path:
    """The file of all records of a chip: a section `operators`, and in `steps` one for every run and slice."""
    return results / f"{slug(slice_.device.name)}.json"


def slug(name: str) -> str:
    """A name for a file or section."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")
