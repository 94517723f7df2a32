"""Runs grouped by what differs between their configs, and named by it."""

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.core.report.identity import Fields, is_bookkeeping
from experiments.core.report.markdown import number, p_name
from experiments.core.report.pooled import alike, pooled
from experiments.core.report.results import Run
from scripts.compare import identities
from scripts.compare.series import Series, pool
from scripts.compare.workdirs import Found

_FIELDS_IN_LABEL = 4  # at most, unless more are needed
_SWEEP = "sweep"  # the directory in which suites keep the trials of a choice
ABSENT = None  # of a field that a config does not have; JSON's null says the same of one that is not set


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs of one config: all of its seeds.

    Attributes:
      parts: what it is called by: what tables call it, the other fields that differ from other groups of the experiment
        (`split=validation`), and how far it has come.
      experiment: what the runs are of.
      runs: without rows.
      series: of all their seeds.
      config: the fields that its runs read, by dotted name; without seeds.
      differing: the part of it that differs within the experiment.
      own: whether a run of it is none of the committed results.
      baseline: what its experiment holds runs like it against: another run of the same density and the like, if any.
    """

    parts: tuple[str, ...]
    experiment: str
    runs: list[Run]
    series: Series
    config: Fields
    differing: Fields
    own: bool = False
    baseline: Run | None = None

    @property
    def label(self) -> str:
        """For example `relaxed top-k, p = 4/3, lam = 0.1`."""
        return ", ".join(self.parts)

    @property
    def run(self) -> Run:
        """The runs as one, without rows."""
        return pooled(self.runs)[0] if len(self.runs) > 1 else self.runs[0]

    @property
    def state(self) -> str:
        """`done`, or how far the runs have come."""
        return "; ".join(dict.fromkeys(run.state for run in self.runs))

    @property
    def done(self) -> bool:
        """Whether the runs have come to their end."""
        return self.runs[0].done

    @property
    def trial(self) -> bool:
        """Whether the runs are trials of a suite's sweep, from which a setting was chosen."""
        return all(_SWEEP in run.name.split("/") for run in self.runs)


def group(found: Found) -> list[Group]:
    """The groups of all runs, named: by experiment, those first that are not all committed."""
    members = alike(found.runs, _identity)
    own = [any(run.name not in found.committed for run in runs) for runs in members]
    order = sorted(range(len(members)), key=lambda i: (identities.place(members[i][0]), not own[i], members[i][0].name))
    members, own = [members[i] for i in order], [own[i] for i in order]
    configs = [identities.fields(runs[0]) for runs in members]
    experiments = [runs[0].experiment for runs in members]
    fields = {
        name: varying([config for config, its in zip(configs, experiments, strict=True) if its == name])
        for name in set(experiments)
    }
    differing = [
        {name: config.get(name, ABSENT) for name in fields[experiment]}
        for config, experiment in zip(configs, experiments, strict=True)
    ]
    labels = _parts(members, experiments, differing)
    return [
        Group(parts, experiment, runs, pool([found.series[run.name] for run in runs]), config, differs, mine, baseline)
        for parts, experiment, runs, config, differs, mine, baseline in zip(
            labels, experiments, members, configs, differing, own, _baselines(members), strict=True
        )
    ]


def first_reference(groups: Sequence[Group]) -> Group | None:
    """Chooses the usual reference of differences: the baseline of the first group that has one among these.

    Trials of sweeps come last. Without a baseline it is the first group that is done.
    """
    done = [group for group in groups if group.done]
    baselines = [group.baseline for group in sorted(done, key=lambda group: group.trial) if group.baseline is not None]
    found = (group for baseline in baselines for group in done if group.runs[0] is baseline)
    return next(found, next(iter(done), None))


def _baselines(members: Sequence[list[Run]]) -> list[Run | None]:
    """By group; looked for once for each method in the same circumstances, as to compare circumstances takes long."""
    alike: dict[str, list[Run]] = {}
    kinds = []
    for run, *_ in members:
        its = identities.identity(run)
        method = its.name(run)[:1]  # none of a method that is not known any more
        where = json.dumps([run.experiment, run.done, its.circumstances(run)], sort_keys=True) if method else ""
        alike.setdefault(where, []).append(run)
        kinds.append((where, *method))
    found: dict[tuple[str, ...], Run | None] = {("",): None}
    for kind, (run, *_) in zip(kinds, members, strict=True):
        if kind not in found:
            found[kind] = identities.identity(run).baseline(run, alike[kind[0]])
    return [found[kind] for kind in kinds]


def _identity(run: Run) -> Any:
    """What runs of one group have in common."""
    fields = identities.fields(run)
    return run.experiment, {name: value for name, value in fields.items() if not is_bookkeeping(name)}


def varying(configs: Sequence[Fields]) -> list[str]:
    """The fields that not all of the configs have the same value of, in order."""
    names = dict.fromkeys(name for config in configs for name in config)
    return [name for name in names if len({json.dumps(config.get(name, ABSENT)) for config in configs}) > 1]


def shown(name: str, value: Any) -> str:
    """A value as people write it: `4/3`, `1e-3`, `(1, 2, 3)`."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, (int, float)):
        if name.rpartition(".")[2] == "p":
            return p_name(value)
        return number(value) if value > 0 else f"{value:g}"
    return f"({', '.join(shown('', part) for part in value)})" if isinstance(value, list) else str(value)


def _parts(
    members: Sequence[list[Run]], experiments: Sequence[str], differing: Sequence[Fields]
) -> list[tuple[str, ...]]:
    names = [identities.identity(runs[0]).name(runs[0]) for runs in members]
    among: dict[str, list[int]] = {}
    for i, experiment in enumerate(experiments):
        among.setdefault(experiment, []).append(i)
    labels: list[tuple[str, ...]] = [()] * len(members)
    for experiment, places in among.items():
        told = _telling([_untold(members[i][0], names[i], differing[i]) for i in places])
        its = identities.identity(members[places[0]][0])
        if any(names[i] for i in places):  # which say of which entry a run is, and so which fields it has
            told = {
                name: usual
                for name, usual in told.items()
                if not its.is_of_entries(name)
                or len({json.dumps(differing[i][name]) for i in places} - {json.dumps(ABSENT)}) > 1
            }
        for i in places:
            runs, fields = members[i], differing[i]
            parts = [experiment or "another experiment"] if len(among) > 1 else []
            parts += names[i]
            parts += [
                f"{name}={shown(name, fields[name])}"
                for name, usual in told.items()
                if fields[name] not in (ABSENT, usual) and name in _untold(runs[0], names[i], fields)
            ]
            parts += [] if runs[0].done else [f"({runs[0].state})"]
            labels[i] = tuple(parts or [runs[0].name])
    # Repetitions of one config differ in their place alone, and so may what is too alike for a short label.
    return [
        parts if labels.count(parts) == 1 else (*parts, f"[{runs[0].name}]")
        for parts, runs in zip(labels, members, strict=True)
    ]


def _untold(run: Run, name: Sequence[str], fields: Fields) -> Fields:
    """The fields that its name, if it has one, does not tell."""
    tells = identities.identity(run).tells
    return {field: value for field, value in fields.items() if not (name and tells(field))}


def _telling(among: Sequence[Fields]) -> Fields:
    """The differing fields that labels give, each with the value that goes without saying, if it has one.

    Of many fields, only as many as tell all groups apart. What goes without saying is the value of most groups.
    """
    fields = dict.fromkeys(name for one in among for name in one)
    written = {name: [json.dumps(one.get(name, ABSENT)) for one in among] for name in fields}
    names = [name for name in written if not is_bookkeeping(name)]
    most = _distinct(written, list(written))
    for name in sorted(names, key=lambda name: -name.count(".")):
        others = [other for other in names if other != name]
        if len(names) > _FIELDS_IN_LABEL and _distinct(written, others) == most:
            names = others
    result = {}
    for name in names:
        value, count = Counter(written[name]).most_common(1)[0]
        usual = len(among) > _FIELDS_IN_LABEL and 3 * count > 2 * len(among)
        result[name] = json.loads(value) if usual else ABSENT
    return result


def _distinct(written: Mapping[str, Sequence[str]], names: Sequence[str]) -> int:
    return len(set(zip(*(written[name] for name in names), strict=True))) if names else 1
