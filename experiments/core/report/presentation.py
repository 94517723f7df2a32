"""The presentation of an experiment: the names, the order and the comparison of its runs in a report."""

import dataclasses
import functools
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.core.config import COMPUTED_HOW
from experiments.core.errors import printable
from experiments.core.kinds import Fields, Kinds, is_of
from experiments.core.report import results
from experiments.core.report.frame import frame
from experiments.core.report.markdown import number, p_name
from experiments.core.report.results import Problem, Run, grouped, pooled

# Fields that do not affect results.
EXECUTION_FIELDS = (
    "accelerator",
    "checkpoint_every",
    "data_dir",
    "download",
    "eval_batch_size",
    "eval_every",
    "export_examples",
    "export_params",
    "features.directory",
    "input.prefetch",
    "input.workers",
    "steps_per_dispatch",
    "tensorboard",
    *COMPUTED_HOW,
)
# Fields in which compared runs may differ: what is tuned, and what computes the same numbers in another way.
_MAY_DIFFER = ("optimizer", "accumulate", "model.remat", "model.scan", "moe.dispatcher", "validation_size")
_FEW = 4  # of so few runs of a method labels give every field that differs


@dataclasses.dataclass(frozen=True, eq=False)
class Presentation:
    """The way in which a report shows the runs of an experiment.

    Attributes:
      experiment: the name of its package.
      kinds: the methods: which field of the config names one, and which fields each reads.
      method: names the method of a run, given the fields of its config.
      baseline: the method that others are compared with, by its name in the config.
      order: returns the place of a run in tables and figures.
      columns: returns what a report groups runs by, beside their fields, as columns of their frame.
      setting: fields besides those of `kinds` that belong to a method, such as what validation chose for it.
      always: fields that labels give wherever a run reads them, even if all runs have the same value.
      names: the names of fields in labels; any other field goes by the last part of its dotted name.
      distance: how far a baseline's fields are from a run's; of several baselines the nearest is taken.
    """

    experiment: str
    kinds: Kinds
    method: Callable[[Fields], str]
    baseline: str
    order: Callable[[Run], Any] = lambda run: run.name
    columns: Callable[[Run], dict[str, Any]] = lambda run: {}
    setting: Collection[str] = ()
    always: Collection[str] = ()
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    distance: Callable[[Fields, Fields], Any] = lambda fields, of_baseline: 0

    def load(self, directory: Path) -> tuple[pd.DataFrame, list[Problem]]:
        """Returns the finished runs of the experiment below `directory`, in order, and all others as problems."""
        runs, problems = results.load(directory)
        reasons = {run.name: self.why_not_shown(run) for run in runs}
        problems += [Problem(name, reason) for name, reason in reasons.items() if reason]
        shown = sorted((run for run in runs if not reasons[run.name]), key=self.order)
        return frame(shown, self.columns), sorted(problems, key=lambda problem: problem.name)

    def joined(self, runs: pd.DataFrame) -> pd.DataFrame:
        """Returns the runs in order; those that differ in their seeds alone as one."""
        return frame(sorted(pooled(runs["run"]), key=self.order), self.columns) if len(runs) else runs

    def why_not_shown(self, run: Run) -> str:
        """Returns the reason why a run cannot be shown; empty if it can."""
        if run.experiment != self.experiment:
            return f"not a run of {self.experiment}"
        kind = run.fields.get(self.kinds.field)
        if not isinstance(kind, str) or kind not in self.kinds.reads:
            return f"config.{self.kinds.field}={kind!r} is none of " + ", ".join(self.kinds.reads)
        try:
            self.method(run.fields)
            self.order(run)
        except results.UNREADABLE as error:
            return f"its config is of another kind: {type(error).__name__}: {error}"
        return ""

    def read(self, fields: Fields) -> Fields:
        """Returns the fields of a config that a run of it reads."""
        return {name: value for name, value in fields.items() if self.kinds.is_read(name, fields)}

    def settings(self, runs: Sequence[Run], *, given: Collection[str] = ()) -> list[str]:
        """Writes the fields in which each run differs from others of its method, as `p = 4/3, learning rate 0.03`.

        Left out are the fields that are `given`, and with many runs the value that more than two thirds of them have.
        """
        return [", ".join(parts.values()) for parts in self._parts(runs, given)]

    def _parts(self, runs: Sequence[Run], given: Collection[str]) -> list[dict[str, str]]:
        """Returns the parts of `settings` by dotted name, as `{"p": "p = 4/3", "optimizer.learning_rate": ...}`."""
        usual = {
            method: _usual([run.fields for run in runs_of_method])
            for method, runs_of_method in grouped(runs, lambda run: self.method(run.fields)).items()
        }
        return [self._differing(run.fields, usual[self.method(run.fields)], given) for run in runs]

    def _differing(self, fields: Fields, usual: Fields, given: Collection[str]) -> dict[str, str]:
        return {
            name: shown(self.names.get(name, name.rpartition(".")[2].replace("_", " ")), name, value)
            for name, value in fields.items()
            if value is not None
            and ((name in usual and value != usual[name]) or is_of(name, self.always))
            and not is_of(name, (*EXECUTION_FIELDS, *given))
            and self.kinds.is_read(name, fields)
        }

    def labels(self, runs: Sequence[Run]) -> list[str]:
        """Labels each run with its method, and the fields in which it differs from others of the method."""
        return [", ".join(parts.values()) for parts in self.parts_of_labels(runs)]

    def parts_of_labels(self, runs: Sequence[Run]) -> list[dict[str, str]]:
        """Returns the parts of `labels` by field, the method as `(method)`; a run without one goes by its name.

        Runs that would have the same label get their names as well, as `(name)`.
        """
        named = zip(runs, self._parts(runs, given=()), strict=True)
        parts = [{"(method)": self.method(run.fields) or run.name, **fields} for run, fields in named]
        labels = [", ".join(parts_of_run.values()) for parts_of_run in parts]
        return [
            parts_of_run | ({"(name)": f"[{run.name}]"} if labels.count(label) > 1 else {})
            for run, parts_of_run, label in zip(runs, parts, labels, strict=True)
        ]

    def references(self, runs: Sequence[Run], method: str = "") -> dict[str, Run | None]:
        """Returns by the name of each run the one of `method` to compare it with; None without another such run.

        The method is the baseline by default. Both runs have the same circumstances. Among several one with a seed in
        common wins, then the nearest (`distance`), then one with the same optimizer, then the first.
        """
        keys = {run.name: _circumstances(self, run) for run in runs}
        candidates = [run for run in runs if run.fields.get(self.kinds.field) == (method or self.baseline)]
        groups = grouped(candidates, lambda run: keys[run.name])

        def reference(run: Run) -> Run | None:
            def rank(other: Run) -> tuple[Any, ...]:
                unpaired = set(run.summary["seeds"]).isdisjoint(other.summary["seeds"])
                tuned_otherwise = other.config.get("optimizer") != run.config.get("optimizer")
                return unpaired, self.distance(run.fields, other.fields), tuned_otherwise

            best = min(groups.get(keys[run.name], []), key=rank, default=None)
            return None if best is run else best

        return {run.name: reference(run) for run in runs}


@functools.lru_cache(maxsize=4096)
def _circumstances(presentation: Presentation, run: Run) -> str:
    """Returns as JSON the fields in which compared runs must agree: data, network, length and the like."""
    kinds = presentation.kinds
    apart = (*presentation.setting, *kinds.of_kinds, kinds.field, *_MAY_DIFFER, *EXECUTION_FIELDS)
    return json.dumps(
        {
            name: value
            for name, value in run.fields.items()
            if value is not None and not is_of(name, apart) and kinds.is_read(name, run.fields)
        }
    )


def _usual(configs: Sequence[Fields]) -> Fields:
    """Returns the fields in which configs of a method differ, with the value that labels leave out, or None."""
    usual: Fields = {}
    for name in dict.fromkeys(name for config in configs for name in config):
        values = [config.get(name) for config in configs]
        keys = [str(value) if isinstance(value, list) else value for value in values]
        key, count = Counter(keys).most_common(1)[0]
        if count < len(configs):
            usual[name] = values[keys.index(key)] if len(configs) > _FEW and 3 * count > 2 * len(configs) else None
    return usual


def shown(name: str, field: str, value: Any) -> str:
    """Writes a field for a label: `p = 4/3`, `learning rate 0.03`, `rescaled`, `schedule geometric`."""
    if isinstance(value, bool):
        return name if value else f"not {name}"
    equal = " = " if len(name) < 4 else " "
    return f"{name}{equal}{written(field, value)}"


def written(field: str, value: Any) -> str:
    """Writes a value as people do: `4/3`, `1e-3`, `(1, 2, 3)`."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, (int, float)):
        if field.rpartition(".")[2] == "p":
            return p_name(value)
        return number(value) if value > 0 else f"{value:g}"
    if isinstance(value, list | tuple):
        return f"({', '.join(written('', part) for part in value)})"
    return printable(str(value))
