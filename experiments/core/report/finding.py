"""Findings: our two answers to a claim of the paper, by one rule."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from experiments.core.report.markdown import plus_minus

Numbers = dict[str, Any]
Answer = Literal["yes", "no", "mixed", "not possible here"]

PAPERS_TASK, STAND_IN = "paper's task", "stand-in"  # what claims are measured on


class Verdict(NamedTuple):
    """An answer, and one number for it: of the paper's own variant, or of several the one nearest to the claim."""

    answer: Answer
    number: str = ""


NOT_POSSIBLE = Verdict("not possible here")


class Finding(NamedTuple):
    """Our side of a claim.

    Attributes:
      as_stated: the verdict at the paper's settings; None where it states none, or they were not measured.
      tuned: the verdict at settings chosen on validation; of a time, on our processors. None where there are none.
      on: what it was measured on.
    """

    as_stated: Verdict | None
    tuned: Verdict | None
    on: str


def where_possible(verdict: Verdict, on: str, *, as_in_paper: bool) -> Finding:
    """A finding with one verdict: as stated if the paper's task or hardware was ours, too, else tuned."""
    return Finding(verdict, None, on) if as_in_paper else Finding(NOT_POSSIBLE, verdict, on)


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


def in_words(difference: Numbers | None) -> str:
    """`8.72 ± 4.82 higher`."""
    shown = plus_minus(difference, signed=True)
    return f"{shown.lstrip('+-')} {'lower' if shown.startswith('-') else 'higher'}"
