"""Measurements in processes of their own: one that ends is begun again without the contestant that ended it."""

from __future__ import annotations

import dataclasses
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scripts.bench.timing import Contest, why

Found = dict[str, Any]
Measure = Callable[[Contest], Found]
_NAME = 256  # bytes of a contestant's name
_MOST_LOST = 3  # contestants of a case: more of them, and the fault is not theirs


@dataclasses.dataclass(frozen=True)
class Case:
    """A part of a section of the record, measured in one process."""

    name: str
    measure: Measure  # returns what is added to the section; it is pickled: a function of a module, or a partial one
    minutes: float = 2.0  # it takes at most on a GPU, with compilation


@dataclasses.dataclass(frozen=True)
class Group:
    """A section of the record: what is measured, and the settings that its numbers depend on."""

    settings: Mapping[str, Any]
    cases: Sequence[Case]


class FailedError(Exception):
    """A measurement failed as a whole; the message says why in a line."""


def isolated(measure: Measure, minutes: float | None = None) -> Found:
    """Returns the result of ``measure``, which is called in a new process.

    A contestant that ends its process or the device, or is at work when the minutes are up, is left out of another try.

    Raises:
      FailedError: it failed otherwise.
    """
    lost: dict[str, str] = {}
    while True:
        result, name, reason = _tried(measure, lost, minutes)
        if result is not None:
            return result
        if not name or len(lost) == _MOST_LOST:
            raise FailedError(reason)
        print(f"  {name} is left out: {reason}", flush=True)
        lost[name] = reason


def _tried(measure: Measure, lost: Mapping[str, str], minutes: float | None) -> tuple[Found | None, str, str]:
    """Returns what was found, or the contestant that the process was about when it ended, and why it did."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    about = context.RawArray("c", _NAME)  # shared memory: to write to it takes no time from those who are timed
    process = context.Process(target=_child, args=(sender, about, measure, dict(lost)))
    process.start()
    sender.close()
    try:
        if not receiver.poll(None if minutes is None else 60 * minutes):
            return None, about.value.decode(), f"not done after {minutes:g} minutes"
        result, reason = receiver.recv()
        return result, about.value.decode(), reason
    except EOFError:
        process.join()
        return None, about.value.decode(), f"it ended the process with status {process.exitcode}"
    finally:
        process.kill()
        process.join()


def _child(sender: Any, about: Any, measure: Measure, lost: dict[str, str]) -> None:
    def tell(name: str) -> None:
        about.value = name.encode()[: _NAME - 1]

    try:
        sender.send((measure(Contest(lost, tell)), ""))
    except Exception as error:
        sender.send((None, why(error)))
