"""One record a machine, ``<results>/<hardware>.json``, with a section for each group of measurements.

A section that is not complete, or has failures, is kept under ``partial-<name>``: readers find whole ones alone.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax

from experiments.core.record.environment import describe
from experiments.core.record.files import lock, read_object, write_json

RESULTS = Path("results/bench")
ROOT = Path(__file__).resolve().parents[2]

_CODE = ("ops", "scripts/bench", "experiments", "configs")
# Beside those of every run.
_PACKAGES = ("jax-cuda13-plugin", "jax-cuda13-pjrt", "jaxopt", "softjax", "entmax", "torch", "torchisotonic")
# Equal in two environments whose measurements may stand in one section.
_SAME = ("code", "packages", "devices", "machine")

_ADVICE = "restore it (git checkout) or remove it, to measure anew"

Section = dict[str, Any]


def surroundings(arguments: Iterable[str], _contest: Any = None) -> Section:
    """Returns what a record says of the command, the code by its content, the packages and the machine."""
    environment = describe(["python", "-m", "scripts.bench", *arguments])
    environment["code"] = _digest()
    installed = {
        package.name.lower().replace("_", "-"): package.version for package in importlib.metadata.distributions()
    }
    environment["packages"] |= {name: installed.get(name) for name in _PACKAGES}
    environment["devices"]["runtime"] = jax.devices()[0].client.platform_version
    return environment


def _digest() -> str:
    """A hash of the Python files that timings depend on: whatever else is committed, the same code has the same."""
    total = hashlib.sha256()
    for path in sorted(path for package in _CODE for path in (ROOT / package).rglob("*.py")):
        total.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()[:16]


def path_of(results: Path, environment: Mapping[str, Any]) -> Path:
    """The file of a machine: named by its CPU and cores, or by its accelerator."""
    platform, machine, devices = environment["devices"]["platform"], environment["machine"], environment["devices"]
    cpu = ["cpu", machine["cpu"] or "unknown", f"{machine['cores']}c"]
    words = cpu if platform == "cpu" else [platform, devices["kind"]]
    return results / ("-".join(re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") for word in words) + ".json")


def begin(path: Path, name: str, environment: Mapping[str, Any], settings: Mapping[str, Any]) -> Section:
    """Returns a section as far as the same code measured it with these settings here, else a new one."""
    settings = json.loads(json.dumps(settings))  # tuples are lists in JSON
    for there in map(_sections(path).get, (f"partial-{name}", name)):
        if not there or "measured" not in there or there["settings"] != settings:
            continue
        if all(there["environment"][field] == environment[field] for field in _SAME):
            return there
    begun = {**environment, "load_average": {"before": [*os.getloadavg()]}}
    return {"environment": begun, "complete": False, "settings": settings, "measured": [], "failed": {}}


def add(section: Section, case: str, found: Mapping[str, Any]) -> None:
    """Adds what a case found: lists grow, mappings are updated, and everything else is replaced."""
    for key, value in found.items():
        there = section.get(key)
        if isinstance(value, list) and isinstance(there, list):
            there += value
        elif isinstance(value, dict) and isinstance(there, dict):
            there.update(value)
        else:
            section[key] = value
    section["measured"].append(case)


def write(path: Path, name: str, section: Section) -> None:
    """Writes a section, under its own name if it is whole; several processes may write to one file."""
    section["environment"]["load_average"]["after"] = [*os.getloadavg()]
    partial = f"partial-{name}"
    with lock(path.parent / ".lock", wait=True):
        there = _sections(path)
        if section["complete"] and not section["failed"]:
            there.pop(partial, None)
            there[name] = section
        else:
            there[partial] = section
        write_json(path, there)


def _sections(path: Path) -> dict[str, Section]:
    return read_object(path, _ADVICE) if path.exists() else {}
