"""Groups runs by their configs, labels the groups by their differences, and chooses those that a page opens with."""

import dataclasses
import itertools
import math
from collections.abc import Sequence

from experiments.core.kinds import Fields
from experiments.core.report.results import Run, alike
from scripts.compare import presentations
from scripts.compare.series import Series, pool
from scripts.compare.workdirs import Found

MOST_SHOWN = 8  # groups that a page opens with


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """The runs of one config, with all of its seeds.

    Attributes:
      parts: the parts of its label by field: its method, the fields that differ from other groups of the experiment,
        and its state if it is unfinished.
      experiment: the experiment of the runs.
      runs: the runs, without rows.
      series: the rows of all their seeds.
      config: the fields that its numbers depend on, by dotted name, without seeds.
      own: whether one of its runs is not a committed result.
      baseline: the first run of the group to compare it with, for example of another method at the same density; None
        if there is none.
    """

    parts: dict[str, str]
    experiment: str
    runs: list[Run]
    series: Series
    config: Fields
    own: bool
    baseline: Run | None = None

    @property
    def label(self) -> str:
        """The label, for example `relaxed top-k, p = 4/3, lam = 0.1`."""
        return ", ".join(self.parts.values())

    @property
    def seeds(self) -> list[int]:
        """The seeds of all runs."""
        return [seed for run in self.runs for seed in run.summary["seeds"]]

    def final(self, metric: str) -> list[float | None]:
        """Returns the last values of a metric, by seed, or by run if it is measured once for a run."""
        return [None if math.isnan(value) else value for value in self.series.final[metric].tolist()]

    @property
    def state(self) -> str:
        """The state of the runs: `done`, or how far they have come."""
        return "; ".join(dict.fromkeys(run.state for run in self.runs))

    @property
    def done(self) -> bool:
        """Tells whether the runs are finished."""
        return self.runs[0].done


def group(found: Found) -> list[Group]:
    """Returns the labelled groups of all runs, by experiment, the user's own runs first."""
    groups = []
    places = {name: place for place, name in enumerate(presentations.PRESENTATIONS)}
    for members in alike(found.runs, lambda run: [run.experiment, presentations.read(run)]):
        series = pool([found.series[run.name] for run in members])
        own = any(run.name not in found.committed for run in members)
        groups.append(Group({}, members[0].experiment, members, series, presentations.read(members[0]), own))
    last = len(places)
    groups.sort(key=lambda one: (places.get(one.experiment, last), one.experiment, not one.own, one.runs[0].name))
    return [one for _, its in itertools.groupby(groups, lambda one: one.experiment) for one in _named(list(its))]


def shown_first(groups: Sequence[Group]) -> list[Group]:
    """Chooses at most `MOST_SHOWN` groups of an experiment for a page to open with.

    They are the user's own groups, their baselines, and committed groups that differ from one of them in a single
    field, or in the fewest if none does. Without own groups they are the first ones on test.
    """
    own = [one for one in groups if one.own]
    committed = [one for one in groups if not one.own]
    if own:
        baselines = [one for one in groups if any(one.runs[0] is mine.baseline for mine in own)]
        distances = {one: min(_distance(one, mine) for mine in own) for one in committed}
        least = max(1, min(distances.values(), default=0))
        near = [one for one, distance in distances.items() if distance <= least]
        chosen = [*own[: MOST_SHOWN - 1], *baselines, *own[MOST_SHOWN - 1 :], *near]
    else:
        its = presentations.of(groups[0].experiment)
        tests = [one for one in committed if one.config.get("split") == "test"]
        chosen = sorted(tests, key=lambda one: its.order(one.runs[0])) or committed
    return list(dict.fromkeys(chosen))[:MOST_SHOWN]


def _distance(one: Group, other: Group) -> int:
    """Returns in how many of the fields that both read the configs differ."""
    return sum(one.config[name] != other.config[name] for name in one.config.keys() & other.config.keys())


def _named(groups: Sequence[Group]) -> list[Group]:
    """Returns the groups of one experiment with labels and baselines."""
    firsts, its = [one.runs[0] for one in groups], presentations.of(groups[0].experiment)
    versions: dict[str, set[str]] = {}  # of each data set, those that are recorded
    for run in firsts:
        versions.setdefault(str(run.fields.get("dataset")), set()).update(filter(None, [run.data]))
    baselines = its.references([run for run in firsts if run.done])
    named = []
    for one, parts in zip(groups, its.parts_of_labels(firsts), strict=True):
        run, baseline = one.runs[0], baselines.get(one.runs[0].name)
        data = {"(data)": run.data} if run.data and len(versions[str(run.fields.get("dataset"))]) > 1 else {}
        state = {} if one.done else {"(state)": f"({one.state})"}
        if baseline and len({run.data, baseline.data} - {""}) > 1:
            baseline = None
        named.append(dataclasses.replace(one, parts=parts | data | state, baseline=baseline))
    return named
