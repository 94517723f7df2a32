"""What our results say of a claim of the paper."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from experiments.core.record.files import read_object

Numbers = dict[str, Any]

# "substitute": measured on something smaller or other than the paper's, which can support the claim but not settle it.
Verdict = Literal["reproduced", "partly", "not", "substitute"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """Our side of a claim.

    Attributes:
      ours: the numbers, with intervals where there are seeds.
      verdict: what they make of the claim.
      why: the rule by which, or what limits it.
      brief: the numbers that matter most, for the README, where `ours` is too long for it.
    """

    ours: str
    verdict: Verdict
    why: str
    brief: str = ""


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
      command: which makes the results.
      page: in the repository, where the results are told in full.
    """

    says: str
    source: str
    paper: str
    find: Callable[[Path], Finding | None]
    figure: str
    config: str
    command: str
    page: str


def all_above(ours: str, differences: Sequence[Numbers | None], brief: str, stand_in: str = "") -> Finding:
    """The finding on a claim that differences are above 0: reproduced if all whole intervals are, in part if some.

    Args:
      ours, brief: of the finding.
      differences: with their intervals.
      stand_in: what was trained in the place of the paper's network, if it was another; then that is the verdict.
    """
    better = [above(difference) for difference in differences]
    count = f"{sum(better)} of {len(better)} intervals lie above 0"
    if stand_in:
        return Finding(ours, "substitute", f"{count}, on {stand_in}", brief)
    return Finding(ours, "reproduced" if all(better) else "partly" if any(better) else "not", count, brief)


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
