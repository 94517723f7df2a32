"""Findings: our two answers to a claim of the paper, each from one comparison, by one rule."""

from typing import Literal, NamedTuple

from experiments.core.report.frame import Numbers
from experiments.core.report.markdown import plus_minus

Answer = Literal["holds", "does not hold", "not shown", "not possible here"]

PAPERS_TASK, STAND_IN = "paper's task", "stand-in"  # values of `Finding.on`


class Verdict(NamedTuple):
    """An answer, and the comparison behind it with its number: `lam = 1e-4: error 8.72 ± 4.82 higher`."""

    answer: Answer
    told: str = ""


NOT_POSSIBLE = Verdict("not possible here")


class Finding(NamedTuple):
    """Our answers to a claim.

    Attributes:
      as_stated: the verdict at the paper's settings; None if the paper states none, or they were not measured.
      tuned: the verdict with both sides chosen on validation among as many settings, or for times on our processors;
        None if there is none.
      on: the task or the hardware of the measurement.
    """

    as_stated: Verdict | None
    tuned: Verdict | None
    on: str


def where_possible(verdict: Verdict, on: str, *, as_in_paper: bool) -> Finding:
    """Returns a finding with one verdict, `as_stated` if the paper's task or hardware was used, else `tuned`."""
    return Finding(verdict, None, on) if as_in_paper else Finding(NOT_POSSIBLE, verdict, on)


def of_sign(sign: int) -> Answer:
    """Returns the answer of a comparison: 1 is on the claim's side, -1 on the other, 0 on neither."""
    return ("not shown", "holds", "does not hold")[sign]


def of_level(difference: Numbers | None, margin: float) -> Answer:
    """Decides whether two are level: the whole interval of their difference lies within the margin, or outside it."""
    if difference is None or None in (difference["mean"], difference["interval95"]):
        return "not shown"
    mean, half = abs(difference["mean"]), difference["interval95"]
    return "holds" if mean + half <= margin else "does not hold" if mean - half > margin else "not shown"


def of_fact(is_so: bool) -> Answer:
    """Returns the answer to a claim that one case decides, or that has to be so in every case."""
    return "holds" if is_so else "does not hold"


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


def judged(difference: Numbers | None, told: str, *, lower: bool = False) -> Verdict:
    """Returns the verdict on a claim that a difference is above 0, or below with `lower`; `told` has a {} for it."""
    side = sign(difference)
    return Verdict(of_sign(-side if lower else side), told.format(in_words(difference)))
