"""Runs grouped by what differs between their configs, and named by it."""

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.core.config import COMPUTED_HOW
from experiments.core.record.metrics import flatten
from experiments.core.report.markdown import number, p_name
from experiments.core.report.pooled import alike, pooled
from experiments.core.report.results import Run
from scripts.compare.series import Series, pool
from scripts.compare.workdirs import Found

Fields = dict[str, Any]
# How a run is carried out; its numbers do not depend on these.
BOOKKEEPING = (
    *("accelerator", "checkpoint_every", "data_dir", "download", "eval_batch_size", "eval_every", "export_params"),
    *("feed", "input.augment_on", "input.prefetch", "input.workers", "steps_per_dispatch", "tensorboard"),
)
_FIELDS_IN_LABEL = 4  # at most, unless more are needed
ABSENT = None  # of a field that a config does not have; JSON's null says the same of one that is not set


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs of one config: all of its seeds.

    Attributes:
      parts: what it is called by: the fields that differ from other groups of the experiment (`p=4/3`), and how far
        it has come.
      experiment: what the runs are of.
      runs: without rows.
      series: of all their seeds.
      config: by field, nested ones as `lam.start`; without seeds and `COMPUTED_HOW`, which do not tell groups apart.
      differing: the part of it that differs within the experiment.
    """

    parts: tuple[str, ...]
    experiment: str
    runs: list[Run]
    series: Series
    config: Fields
    differing: Fields

    @property
    def label(self) -> str:
        """For example `method=relaxed, p=4/3`."""
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


def group(found: Found) -> list[Group]:
    """The groups of all runs, by experiment, and named."""
    members = sorted(alike(found.runs), key=lambda runs: (runs[0].experiment, runs[0].name))
    configs = [_fields(runs[0]) for runs in members]
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
        Group(parts, experiment, runs, pool([found.series[run.name] for run in runs]), config, differs)
        for parts, experiment, runs, config, differs in zip(
            labels, experiments, members, configs, differing, strict=True
        )
    ]


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


def _fields(run: Run) -> Fields:
    config = {name: value for name, value in run.config.items() if name not in ("seeds", *COMPUTED_HOW)}
    return {name.replace("/", "."): value for name, value in sorted(flatten(config))}


def _parts(
    members: Sequence[list[Run]], experiments: Sequence[str], differing: Sequence[Fields]
) -> list[tuple[str, ...]]:
    among: dict[str, list[Fields]] = {}
    for experiment, fields in zip(experiments, differing, strict=True):
        among.setdefault(experiment, []).append(fields)
    told = {experiment: _telling(configs) for experiment, configs in among.items()}
    labels: list[tuple[str, ...]] = []
    for runs, experiment, fields in zip(members, experiments, differing, strict=True):
        parts = [experiment or "another experiment"] if len(told) > 1 else []
        parts += [
            f"{name}={shown(name, fields[name])}"
            for name, usual in told[experiment].items()
            if fields[name] is not ABSENT and fields[name] != usual
        ]
        parts += [] if runs[0].done else [f"({runs[0].state})"]
        labels.append(tuple(parts or [runs[0].name]))
    # Repetitions of one config differ in their place alone, and so may what is too alike for a short label.
    return [
        parts if labels.count(parts) == 1 else (*parts, f"[{runs[0].name}]")
        for parts, runs in zip(labels, members, strict=True)
    ]


def _telling(among: Sequence[Fields]) -> Fields:
    """The differing fields that labels give, each with the value that goes without saying, if it has one.

    Of many fields, only as many as tell all groups apart. What goes without saying is the value of most groups.
    """
    written = {name: [json.dumps(fields[name]) for fields in among] for name in among[0]}
    names = [name for name in written if name not in BOOKKEEPING]
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
