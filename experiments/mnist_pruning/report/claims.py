"""Our answers to the paper's claims on pruning: its Section 6, with all three layers of the MLP pruned to 10 %.

Each compares the relaxed top-k of p = 4/3 with one rival: at the paper's lam and learning rate, and with lam falling,
where both sides are the best on validation of as many settings.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.core.record.summary import interval
from experiments.core.report import finding, markdown
from experiments.core.report.finding import Finding, Numbers, Verdict, in_words
from experiments.core.report.paired import minus
from experiments.core.report.results import Run
from experiments.mnist_pruning.report.runs import (
    epochs_to_hard,
    is_annealed,
    is_as_in_paper,
    is_tuned,
    load,
    mean_or_inf,
    sections,
    sections_at_best,
)

P = 4 / 3  # the paper's other p, 2, is in the tables
_KEPT, _LAYERS = 0.1, (1, 2, 3)


@dataclasses.dataclass(frozen=True)
class _Pair:
    """The relaxed top-k and its rival, and what says in the table how they were trained."""

    relaxed: Run
    rival: Run
    how: str

    def minus(self, metric: str) -> Numbers | None:
        """The metric of the relaxed top-k minus that of its rival, paired by seed."""
        return minus(self.relaxed, self.rival, metric)


def _at_papers_rate(results: Path) -> list[Run]:
    """Returns the runs on test with the paper's learning rate."""
    section = sections(load(results / "mnist_pruning"), "test").get(("mnist", _KEPT, -len(_LAYERS), _LAYERS), [])
    return [run for run in section if not is_tuned(run)]


def _searched(results: Path) -> list[Run]:
    """Returns the runs on test with a budget for each matrix, each at the best of as many settings."""
    return sections_at_best(load(results / "mnist_pruning")).get(("mnist", 1, -_KEPT), [])


def _pair(runs: Sequence[Run], rival: str, how: str, is_ours: Callable[[Run], bool]) -> _Pair | None:
    """Returns the first relaxed run of `runs` and the one of the method `rival`; None if one is missing."""
    ours = next((run for run in runs if is_ours(run) and run.config["p"] == P), None)
    other = next((run for run in runs if run.config["method"] == rival), None)
    return _Pair(ours, other, how) if ours and other else None


def _finding(results: Path, rival: str, judge: Callable[[_Pair], Verdict], *, searched: bool = True) -> Finding | None:
    """Returns the verdict at the paper's lam, and with lam falling: on runs that were searched alike, if there are."""
    at_papers_rate = _at_papers_rate(results)
    stated = _pair(at_papers_rate, rival, "lam = 1e-4", lambda run: is_as_in_paper(run.fields))
    runs, how = (_searched(results), "both tuned, lam falls") if searched else (at_papers_rate, "lam falls")
    tuned = _pair(runs, rival, how, is_annealed)
    if stated is None:
        return None
    return Finding(judge(stated), judge(tuned) if tuned else None, finding.PAPERS_TASK)


def accuracy(results: Path) -> Finding | None:
    """Judges whether the error at the end is lower than hard top-k's."""

    def judge(pair: _Pair) -> Verdict:
        difference = pair.minus("hardened_error")
        return Verdict(finding.of_sign(-finding.sign(difference)), f"{pair.how}: error {in_words(difference)}")

    return _finding(results, "hard", judge)


def speed(results: Path) -> Finding | None:
    """Judges whether the largest weights alone have hard top-k's last error after fewer epochs than hard top-k's own.

    A seed that never has it counts as one that has it an epoch after the end. Says how long an epoch takes, too.
    """

    def judge(pair: _Pair) -> Verdict:
        first, own = epochs_to_hard(pair.relaxed, pair.rival), epochs_to_hard(pair.rival, pair.rival)
        if first is None or own is None:
            return Verdict(finding.of_sign(0), f"{pair.how}: -")
        never = pair.relaxed.summary["epochs"] + 1
        pairs = zip(first["per_seed"], own["per_seed"], strict=True)
        difference = interval(
            [None if hard is None else (never if ours is None else ours) - hard for ours, hard in pairs]
        )
        seconds = [run.rows[-1]["seconds"] / run.summary["epochs"] for run in (pair.relaxed, pair.rival)]
        shown = markdown.plus_minus(difference, signed=True).lstrip("+-")
        told = f"{shown} epochs {'sooner' if mean_or_inf(difference) < 0 else 'later'}"
        told = f"{pair.how}: {told}, each {seconds[0] / seconds[1]:.1f} times as long"
        return Verdict(finding.of_sign(-finding.sign(difference)), told)

    return _finding(results, "hard", judge)


def density(results: Path, margin: float) -> Finding | None:
    """Judges whether the share of weights that are not 0 at the end is 10 %, to a margin in points."""

    def judge(pair: _Pair) -> Verdict:
        share = pair.relaxed.end("train_density")
        is_a_tenth = abs(100 * mean_or_inf(share) - 100 * _KEPT) <= margin
        return Verdict(finding.of_fact(is_a_tenth), f"{pair.how}: {markdown.plus_minus(share, scale=100)} %")

    return _finding(results, "hard", judge)


def optimal_transport(results: Path, margin: float) -> Finding | None:
    """Judges whether a hard top-k with its gradient errs as the relaxed one does, to a margin in points."""

    def judge(pair: _Pair) -> Verdict:
        transports = minus(pair.rival, pair.relaxed, "test_error")
        return Verdict(finding.of_level(transports, margin), f"{pair.how}: transport's error {in_words(transports)}")

    return _finding(results, "ot_straight_through", judge, searched=False)
