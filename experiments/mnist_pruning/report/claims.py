"""Our answers to the paper's claims on pruning: its Section 6 with all three layers of the MLP pruned to 10 %."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.core.kinds import is_of
from experiments.core.record.summary import interval
from experiments.core.report import finding, making, markdown
from experiments.core.report.finding import Finding, Verdict, in_words, sign
from experiments.core.report.paired import minus
from experiments.core.report.results import Run
from experiments.mnist_pruning.methods import KINDS
from experiments.mnist_pruning.report.runs import (
    PRESENTATION,
    epochs_in_words,
    epochs_to_hard,
    is_as_in_paper,
    is_tuned,
    load,
    mean_or_inf,
    sections,
)


class _Compared(NamedTuple):
    """The runs that the claims compare.

    Attributes:
      hard: by the name of a run, the hard top-k that it is compared with.
      papers: the relaxed top-k at the paper's lam.
      best: the relaxed top-k at the other lam with the least error on validation.
      transport: hard top-k with the gradient of optimal transport.
    """

    hard: dict[str, Run | None]
    papers: list[Run]
    best: Run | None
    transport: Run | None


@functools.lru_cache(maxsize=2)
def _compared(results: Path) -> _Compared:
    runs, key = load(results / "mnist_pruning"), ("mnist", 0.1, -3, (1, 2, 3))
    section = sections(runs, "test").get(key, [])
    hard = PRESENTATION.references(section)
    # The best of several by their test errors would be judged too well by its own interval.
    won = making.chosen(results / "mnist_pruning")
    tried = [run for run in sections(runs, "validation").get(key, []) if run.name in won and not is_tuned(run)]
    errors = {_setting(run): mean_or_inf(run.end("hardened_error")) for run in tried}
    relaxed = [run for run in section if run.config["method"] == "relaxed" and hard[run.name]]
    others = [run for run in relaxed if errors.get(_setting(run), float("inf")) < float("inf")]
    return _Compared(
        hard=hard,
        papers=[run for run in relaxed if is_as_in_paper(run.fields)],
        best=min(
            (run for run in others if not is_as_in_paper(run.fields)),
            key=lambda run: errors[_setting(run)],
            default=None,
        ),
        transport=next((run for run in section if run.config["method"] == "ot_straight_through"), None),
    )


def _setting(run: Run) -> str:
    """The method, and the fields that are chosen for it."""
    of_method = (KINDS.field, *KINDS.of_kinds, *PRESENTATION.setting)
    return repr([one for one in PRESENTATION.read(run.fields).items() if is_of(one[0], of_method)])


def _finding(judge: Callable[[_Compared, Sequence[Run]], Verdict | None]) -> Callable[[Path], Finding | None]:
    """Turns `judge` into a finding: its verdict on the runs at the paper's lam, and on the one at a chosen lam."""

    @functools.wraps(judge)
    def find(results: Path) -> Finding | None:
        compared = _compared(results)
        stated = judge(compared, compared.papers) if compared.papers else None
        tuned = judge(compared, [compared.best]) if compared.best else None
        return stated and Finding(stated, tuned, finding.PAPERS_TASK)

    return find


@_finding
def accuracy(compared: _Compared, runs: Sequence[Run]) -> Verdict:
    """Judges whether the error at the end is lower than hard top-k's; the number is the one nearest to the claim."""
    values = [minus(run, compared.hard[run.name], "test_error") for run in runs]
    return Verdict(finding.answer([-sign(one) for one in values]), f"error {in_words(min(values, key=mean_or_inf))}")


@_finding
def speed(compared: _Compared, runs: Sequence[Run]) -> Verdict:
    """Judges whether the largest weights alone come to hard top-k's last error before the end, in every seed."""
    epochs = [epochs_to_hard(run, compared.hard[run.name]) or interval([None]) for run in runs]
    ends = [run.summary["epochs"] for run in runs]
    sooner = [None not in one["per_seed"] and max(one["per_seed"]) < end for one, end in zip(epochs, ends, strict=True)]
    first, end = min(zip(epochs, ends, strict=True), key=lambda pair: mean_or_inf(pair[0]))
    told = epochs_in_words(first)
    told = told if told.startswith("in") else f"after {told} of {end} epochs"
    return Verdict(finding.answer([1 if one else -1 for one in sooner]), told)


@_finding
def density(compared: _Compared, runs: Sequence[Run]) -> Verdict:
    """Judges whether 10.0 % of the weights are not 0 at the end, to the first decimal."""
    shares = [run.end("train_density") for run in runs]
    when = "" if runs is compared.papers else ", at the end"
    is_a_tenth = [abs(mean_or_inf(share) - 0.1) < 5e-4 for share in shares]
    return Verdict(finding.in_every_case(is_a_tenth), f"{markdown.plus_minus(shares[0], scale=100)} %{when}")


@_finding
def optimal_transport(compared: _Compared, runs: Sequence[Run]) -> Verdict | None:
    """Judges whether the intervals of all its differences from the relaxed runs include 0; the number is the nearest.

    None without a run of it.
    """
    if compared.transport is None:
        return None
    values = [minus(compared.transport, run, "test_error") for run in runs]
    is_level = [one is not None and one["interval95"] is not None and not sign(one) for one in values]
    nearest = min(values, key=lambda one: abs(mean_or_inf(one)))
    return Verdict(finding.in_every_case(is_level), f"error {in_words(nearest)}")
