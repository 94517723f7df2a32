"""Findings: our two answers to a claim of the paper, at its settings and at ours, by one rule."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from experiments.core.report.markdown import plus_minus

Numbers = dict[str, Any]
Answer = Literal["yes", "no", "mixed", "not possible here"]

PAPERS_TASK, STAND_IN = "paper's task", "stand-in"  # values of `Finding.on`


class Verdict(NamedTuple):
    """An answer, and the number behind it: that of the paper's own variant, else the one nearest to the claim."""

    answer: Answer
    number: str = ""


NOT_POSSIBLE = Verdict("not possible here")


class Finding(NamedTuple):
    """Our answers to a claim.

    Attributes:
      as_stated: the verdict at the paper's settings; None if the paper states none, or they were not measured.
      tuned: the verdict at settings chosen on validation, or for times on our processors; None if there is none.
      on: the task or the hardware of the measurement.
    """

    as_stated: Verdict | None
    tuned: Verdict | None
    on: str


def where_possible(verdict: Verdict, on: str, *, as_in_paper: bool) -> Finding:
    """Returns a finding with one verdict, `as_stated` if the paper's task or hardware was used, else `tuned`."""
    return Finding(verdict, None, on) if as_in_paper else Finding(NOT_POSSIBLE, verdict, on)


def answer(signs: Sequence[int]) -> Answer:
    """Decides whether a claim holds, by comparisons: 1 if a whole interval supports it, -1 if one contradicts it, or 0.

    - yes: more than half support it, and none contradicts it.
    - mixed: some contradict it, and more than a third support it.
    - no: everything else, so one win among several losses, and differences that do not show.

    The paper's settings and ours are judged apart: a loss at the paper's is a "no", whatever other settings do.
    """
    wins, losses = signs.count(1), signs.count(-1)
    if losses:
        return "mixed" if 3 * wins > len(signs) else "no"
    return "yes" if 2 * wins > len(signs) else "no"


def in_every_case(holds: Iterable[bool]) -> Answer:
    """Decides whether a claim about every case holds: one counterexample is enough for a "no"."""
    return "yes" if all(holds) else "no"


def sign(difference: Numbers | None) -> int:
    """Returns 1 or -1 if the whole interval of a difference lies above or below 0; else 0, as without an interval."""
    if difference is None or None in (difference["mean"], difference["interval95"]):
        return 0
    mean, half = difference["mean"], difference["interval95"]
    return 0 if abs(mean) <= half else 1 if mean > 0 else -1


def in_words(difference: Numbers | None) -> str:
    """Writes a difference as `8.72 ± 4.82 higher`."""
    shown = plus_minus(difference, signed=True)
    return f"{shown.lstrip('+-')} {'lower' if shown.startswith('-') else 'higher'}"
