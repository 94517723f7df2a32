"""Findings: our two answers to a claim of the paper, by one rule."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from experiments.core.record.files import read_object
from experiments.core.report.markdown import plus_minus

Numbers = dict[str, Any]
Answer = Literal["yes", "no", "mixed", "not possible here"]

PAPERS_TASK, STAND_IN = "paper's task", "stand-in"  # what claims are measured on


@dataclasses.dataclass(frozen=True)
class Measured:
    """One of the numbers of a finding: what it is of, its mean, and half the width of its 95 % interval.

    Where there is no mean, `instead` says why; without a half width there are no seeds to tell it by.
    """

    name: str
    mean: float | None
    half: float | None = None
    instead: str = "not measured"

    @staticmethod
    def of(name: str, value: Numbers | None, *, scale: float = 1.0, instead: str = "not measured") -> "Measured":
        """Makes one of an interval (`summary.interval`) times `scale`; where there is none, of no mean."""
        mean, half = (None, None) if value is None else (value["mean"], value["interval95"])
        return Measured(name, mean and scale * mean, half and scale * half, instead)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """An answer, and one number for it: of the paper's own variant, or of several the one nearest to the claim."""

    answer: Answer
    number: str = ""


NOT_POSSIBLE = Verdict("not possible here")


@dataclasses.dataclass(frozen=True)
class Finding:
    """Our side of a claim.

    Attributes:
      plain: the finding in one sentence, for readers who know nothing of it.
      as_stated: the verdict at the paper's settings; None where it states none, or they were not measured.
      tuned: the verdict at settings chosen on validation; of a time, on our processors. None where there are none.
      on: what it was measured on.
      unit: of the numbers.
      measured: all numbers behind the verdicts, one by one.
    """

    plain: str
    as_stated: Verdict | None
    tuned: Verdict | None
    on: str
    unit: str
    measured: Sequence[Measured] = ()


@dataclasses.dataclass(frozen=True)
class Claim:
    """What the paper says.

    Attributes:
      short: the claim in a few words.
      says: the claim.
      source: where it does.
      paper: the numbers that it states for it.
      find: reads our side from the directory of results; None where they hold nothing on it.
      figure: ours, below the directory of results.
      config: in the repository.
      commands: which make the results.
      pages: in the repository, where the results are told in full.
    """

    short: str
    says: str
    source: str
    paper: str
    find: Callable[[Path], Finding | None]
    figure: str
    config: str
    commands: tuple[str, ...]
    pages: tuple[str, ...]


def answer(signs: Sequence[int]) -> Answer:
    """Says whether a claim holds, by comparisons: 1 where the whole interval is for it, -1 if against it, 0 if neither.

    - yes: more than half are for it, and none is against it.
    - mixed: some are against it, and more than a third are for it.
    - no: all else. One win among several losses is none, and a difference that does not show is not claimed.

    The paper's settings and ours are answered apart: a loss as stated is a "no", whatever another setting does.
    """
    wins, losses = signs.count(1), signs.count(-1)
    if losses:
        return "mixed" if 3 * wins > len(signs) else "no"
    return "yes" if 2 * wins > len(signs) else "no"


def in_every_case(holds: Iterable[bool]) -> Answer:
    """Whether a claim about every case holds: one counterexample is enough for a "no"."""
    return "yes" if all(holds) else "no"


def sign(difference: Numbers | None) -> int:
    """1 or -1 where the whole interval of a difference lies above or below 0; 0 without an interval."""
    if difference is None or None in (difference["mean"], difference["interval95"]):
        return 0
    mean, half = difference["mean"], difference["interval95"]
    return 0 if abs(mean) <= half else 1 if mean > 0 else -1


def more_or_less(difference: Numbers | None) -> str:
    """`8.72 ± 4.82 points more`."""
    return _in_words(difference, "points more", "points less")


def higher_or_lower(what: str, difference: Numbers | None) -> str:
    """`error 8.72 ± 4.82 higher`."""
    return f"{what} {_in_words(difference, 'higher', 'lower')}"


def _in_words(difference: Numbers | None, above: str, below: str) -> str:
    shown = plus_minus(difference, signed=True)
    return f"{shown.lstrip('+-')} {below if shown.startswith('-') else above}"


def read(path: Path) -> Any:
    """The object in a JSON file, or None if there is no such file."""
    return read_object(path, "put back a copy of it, or make it again") if path.exists() else None


def first_on_accelerator(results: Path, benchmark: str) -> Any:
    """The record of a benchmark on an accelerator, else on a CPU, else None: the paper's hardware comes first.

    Every machine has a file in `results`/bench, in which every benchmark has a section.
    """
    machines = [read(path) for path in sorted((results / "bench").glob("*.json"))]
    records = [machine[benchmark] for machine in machines if benchmark in machine]
    return next(iter(sorted(records, key=lambda record: not on_accelerator(record))), None)


def on_accelerator(record: Numbers) -> bool:
    """Whether a benchmark was measured on another device than a CPU."""
    return record["environment"]["devices"]["platform"] != "cpu"


def name_of(record: Numbers) -> str:
    """Names the hardware of a benchmark, for example `2 cores of AMD EPYC`."""
    devices, machine = record["environment"]["devices"], record["environment"]["machine"]
    return devices["kind"] if on_accelerator(record) else f"{machine['cores']} cores of {machine['cpu']}"
