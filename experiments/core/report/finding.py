"""What our results say of a claim of the paper."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from experiments.core.record.files import read_object

Numbers = dict[str, Any]

# "substitute": measured on something smaller or other than the paper's, which can support the claim but not settle it.
Verdict = Literal["reproduced", "partly", "not", "substitute"]


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
    def of(name: str, value: Numbers | None) -> "Measured":
        """Of an interval (`summary.interval`), if there is one."""
        return Measured(name, None) if value is None else Measured(name, value["mean"], value["interval95"])


@dataclasses.dataclass(frozen=True)
class Finding:
    """Our side of a claim.

    Attributes:
      ours: the numbers, with intervals where there are seeds.
      verdict: what they make of the claim.
      why: the rule by which, or what limits it.
      brief: the numbers that matter most, for the README, where `ours` is too long for it.
      plain: the finding in one sentence, for readers who know nothing of it.
      unit: what is measured.
      measured: the numbers that matter most, one by one.
    """

    ours: str
    verdict: Verdict
    why: str
    brief: str = ""
    plain: str = ""
    unit: str = ""
    measured: Sequence[Measured] = ()


@dataclasses.dataclass(frozen=True)
class Claim:
    """What the paper says.

    Attributes:
      says: the claim.
      source: where it does.
      paper: the numbers that it states for it.
      find: reads our side from the directory of results; None where they hold nothing on it.
      figure: ours, below the directory of results.
      config: in the repository.
      commands: which make the results.
      pages: in the repository, where the results are told in full.
    """

    says: str
    source: str
    paper: str
    find: Callable[[Path], Finding | None]
    figure: str
    config: str
    commands: tuple[str, ...]
    pages: tuple[str, ...]


def all_above(
    ours: str,
    differences: Mapping[str, Numbers | None],
    brief: str,
    *,
    ahead: str,
    unit: str,
    stand_in: str = "",
    seen: str = "",
) -> Finding:
    """The finding on a claim that differences are above 0: reproduced if all whole intervals are, in part if some.

    Args:
      ours, brief, unit: of the finding.
      differences: with their intervals, by what they are of.
      ahead: what it means that a difference is above 0, as a plain sentence begins.
      stand_in: what was trained in the place of the paper's network, if it was another; then that is the verdict.
      seen: what `power` says of the differences.
    """
    better = [above(difference) for difference in differences.values()]
    count, worse = f"{sum(better)} of {len(better)}", sum(map(below, differences.values()))
    where = f"in {count} comparisons{f', and behind in {worse}' if worse else ''}."
    verdict: Verdict = "reproduced" if all(better) else "partly" if any(better) else "not"
    return Finding(
        ours,
        "substitute" if stand_in else verdict,
        f"{lie_above(differences.values())}{f', on {stand_in}' if stand_in else ''}{seen}",
        brief,
        plain=f"{f'On {stand_in}, {ahead[0].lower()}{ahead[1:]}' if stand_in else ahead} {where}",
        unit=unit,
        measured=[Measured.of(name, value) for name, value in differences.items()],
    )


def lie_above(differences: Collection[Numbers | None]) -> str:
    """How many intervals of differences lie above 0, and how many below if any does."""
    worse = sum(map(below, differences))
    return (
        f"{sum(map(above, differences))} of {len(differences)} intervals lie above 0{f', {worse} below' * bool(worse)}"
    )


def power(rows: Sequence[Numbers]) -> str:
    """Which differences could have been seen, by the `detectable` of rows; nothing where there are no intervals."""
    seen = [row["detectable"] for row in rows if row["detectable"] is not None]
    return f"; differences of {min(seen):.2f} to {max(seen):.2f} are seen in 80 % of such experiments" if seen else ""


def read(path: Path) -> Any:
    """The object in a JSON file, or None if there is no such file."""
    return read_object(path, "put back a copy of it, or make it again") if path.exists() else None


def below(difference: Numbers | None) -> bool:
    """Whether the whole interval of a difference lies below 0; not so without an interval."""
    return _sign(difference) < 0


def above(difference: Numbers | None) -> bool:
    """Whether the whole interval of a difference lies above 0; not so without an interval."""
    return _sign(difference) > 0


def _sign(difference: Numbers | None) -> int:
    if difference is None or None in (difference["mean"], difference["interval95"]):
        return 0
    mean, half = difference["mean"], difference["interval95"]
    return 0 if abs(mean) <= half else 1 if mean > 0 else -1
