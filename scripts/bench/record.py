"""What the commands of the benchmarks have in common: their options, and the record that each of them writes."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeAlias

import jax

from experiments.core.record.environment import Launch, describe
from scripts import sections
from scripts.bench.failure import LostDeviceError, caught
from scripts.bench.sizes import Case

RESULTS = Path("results/bench")
_CODE = ("ops", "scripts/bench", "experiments", "configs")
# Beside those of every run.
_PACKAGES = ("jax-cuda13-plugin", "jax-cuda13-pjrt", "torch")
# What must be the same of two records for one to go on with the other; and the command, but for where it writes.
_SAME = ("code", "packages", "devices", "machine")
_ATTEMPTS = 2


def parser(module: str, doc: str | None) -> argparse.ArgumentParser:
    """Of ``python -m <module>``, whose docstring begins with what it does and a colon."""
    return argparse.ArgumentParser(prog=f"python -m {module}", description=(doc or "").split(":")[0])


def parse(
    parser: argparse.ArgumentParser, arguments: Sequence[str], harmless: Collection[str] = ()
) -> argparse.Namespace:
    """The options, with the directory for the record as the last one.

    Where that is not given the records of the default settings are, which those of no others may replace: what changes
    them is refused, but for ``seconds``, which only makes times more exact, and what is ``harmless``, as it is in the
    name of the record.
    """
    parser.add_argument(
        "--results", type=Path, help=f"directory to write to; left out: {RESULTS}, for the default settings alone"
    )
    options = parser.parse_args(arguments)
    if options.results is None:
        options.results = RESULTS
        for name, value in vars(options).items():
            if name not in ("results", "seconds", *harmless) and value != parser.get_default(name):
                parser.error(
                    f"--{name}: the records in {RESULTS} are of the default, {parser.get_default(name)}, and one of "
                    f"{value} would replace them: --results must say where to write it"
                )
    return options


def begin(module: str, arguments: Sequence[str], results: Path) -> dict[str, Any]:
    """Makes the directory, before anything is timed, and returns what the record says of machine and command.

    Raises:
      DamagedError: the machine's file, to which the record will be added, is not JSON.
    """
    results.mkdir(parents=True, exist_ok=True)
    environment = surroundings(module, arguments)
    sections.read(path_of(results, environment))
    return environment


def surroundings(module: str, arguments: Sequence[str]) -> dict[str, Any]:
    """What the record of a command says of it, of the code by its content, of the machine and its load so far."""
    environment = describe(Launch(command=["python", "-m", module, *arguments]))
    environment["code"] = _digest()
    environment["packages"] |= versions(_PACKAGES)
    environment["devices"]["runtime"] = jax.devices()[0].client.platform_version
    environment["load_average"] = {"before": load_average()}
    return environment


@functools.cache
def _digest() -> str:
    """A hash of the Python files that timings depend on: whatever else is committed, the same code has the same."""
    root, total = Path(__file__).resolve().parents[2], hashlib.sha256()
    for path in (path for package in _CODE for path in sorted((root / package).rglob("*.py"))):
        total.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()[:16]


def versions(packages: Iterable[str]) -> dict[str, str | None]:
    """Of packages, None of those that are not installed."""
    found: dict[str, str | None] = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def path_of(results: Path, environment: Mapping[str, Any]) -> Path:
    """The file of all records of a machine, `<results>/<hardware>.json`: a section each."""
    return results / f"{hardware_name(environment)}.json"


def write(
    results: Path, name: str, environment: Mapping[str, Any], document: Mapping[str, Any], complete: bool = True
) -> Path:
    """Writes the section `name`, with whether everything is `complete` that it is to hold. Returns the file's path."""
    path = path_of(results, environment)
    load = environment["load_average"] | {"after": load_average()}
    whole = {"environment": {**environment, "load_average": load}, "complete": complete, **document}
    sections.write(path, whole, name)
    return path


def is_complete(document: Mapping[str, Any], environment: Mapping[str, Any]) -> bool:
    """Whether a record is whole, and of the same code, command, versions and machine."""
    return document.get("complete") is True and _same(document, environment)


def progress(document: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """Of a record that is not complete: cases, contestants lost, and tries that ended, as numbers; None of others."""
    if document.get("complete") is not False:
        return None
    lost, tries = (document.get(name, {}).values() for name in ("lost", "tries"))
    return len(document.get("cases", [])), sum(map(len, lost)), sum(sum(of_case.values()) for of_case in tries)


def _same(document: Mapping[str, Any], environment: Mapping[str, Any]) -> bool:
    found = document["environment"]
    return all(found[field] == environment[field] for field in _SAME) and _asked(found) == _asked(environment)


def _asked(environment: Mapping[str, Any]) -> list[str]:
    return [option for option in environment["command"] if not option.startswith("--results=")]


Attempt: TypeAlias = Callable[[str], AbstractContextManager[Any]]


@dataclasses.dataclass
class Kept:
    """What a record holds so far: it is written after each case and part, for the same command to go on with.

    Attributes:
      document: `cases`; `failed`, the parts that could not be measured, and why; and `lost`, by case, the contestants
        that ended the device, and why; `tries`, likewise, of those that a process was about when it ended.
      write: takes the document.
    """

    document: dict[str, Any]
    write: Callable[[dict[str, Any]], Any] = lambda document: None

    def missing(self, cases: Iterable[Case]) -> list[Case]:
        """Those that are not measured yet."""
        measured = [(case["batch"], case["n"], case["k"]) for case in self.document.get("cases", [])]
        return [case for case in cases if case not in measured]

    def case(self, case: Case, measure: Callable[[Mapping[str, str], Attempt], dict[str, Any]]) -> None:
        """Adds what `measure` finds, which is told whom to leave out, and why, and tells whom it is about.

        Whom two processes were about when they were ended is left out, too: a compiler may end them.

        Raises:
          LostDeviceError: one of the others has ended the device; the next time it is left out, too.
        """
        lost = self.document.setdefault("lost", {}).setdefault(str(case), {})
        tries = self.document.setdefault("tries", {}).pop(str(case), {})
        lost |= {name: f"it ended the process {number} times" for name, number in tries.items() if number >= _ATTEMPTS}
        try:
            self.document.setdefault("cases", []).append(measure(lost, functools.partial(self._attempt, case, tries)))
        except LostDeviceError as error:
            lost[error.name] = error.reason
            raise
        finally:
            self.write(self.document)

    @contextlib.contextmanager
    def _attempt(self, case: Case, before: Mapping[str, int], name: str) -> Iterator[None]:
        tries = self.document["tries"]
        tries[str(case)] = {**before, name: before.get(name, 0) + 1}
        self.write(self.document)
        try:
            yield
        finally:
            del tries[str(case)]
            self.write(self.document)

    def part(self, name: str, measure: Callable[[], Any]) -> None:
        """The same for what is no case: it is measured once, and left out where that fails."""
        failed = self.document.setdefault("failed", {})
        if self.document.get(name) or name in failed:
            return
        try:
            with caught(failed, name):
                self.document[name] = measure()
        finally:
            self.write(self.document)


def keep(results: Path, name: str, environment: Mapping[str, Any], document: Mapping[str, Any]) -> Kept:
    """What is there of the same measurement, if it was broken off, and else `document`, of settings alone."""
    there = sections.read(path_of(results, environment), name) or {}
    begun = {key: value for key, value in there.items() if key not in ("environment", "complete")}
    goes_on = there.get("complete") is False and _same(there, environment)
    if cases := len(begun.get("cases", [])) if goes_on else 0:
        print(f"going on after {cases} cases that are measured already", flush=True)
    return Kept(
        begun if goes_on else dict(document), functools.partial(write, results, name, environment, complete=False)
    )


def hardware_name(environment: Mapping[str, Any]) -> str:
    """A file name for the machine: its CPU and cores, or its accelerator."""
    platform, machine, devices = environment["devices"]["platform"], environment["machine"], environment["devices"]
    if platform == "cpu":
        words = ["cpu", machine["cpu"] or "unknown", f"{machine['cores']}c"]
    else:
        words = [platform, devices["kind"]]
    return "-".join(re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") for word in words)


def load_average() -> list[float] | None:
    """Of the machine, over 1, 5 and 15 minutes, where it is known."""
    return list(os.getloadavg()) if hasattr(os, "getloadavg") else None
