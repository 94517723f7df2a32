"""How the runs of an experiment are named, coloured and compared. Science knows nothing of this: `report.py` has it."""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.core.errors import printable
from experiments.core.kinds import Fields, Kinds, is_of
from experiments.core.report import results
from experiments.core.report.markdown import number, p_name
from experiments.core.report.results import Problem, Run
from experiments.core.report.runs import RUN, differing, dotted, frame, is_how
from experiments.core.report.style import Look

# Fields that no comparison of methods is to keep alike: what is tuned, and what computes the same numbers otherwise.
_NOT_KEPT_ALIKE = ("optimizer", "accumulate", "model.remat", "model.scan", "moe.dispatcher", "validation_size")

_FEW = 4  # runs of a method, of which labels give every field that differs


@dataclasses.dataclass(frozen=True)
class Presentation:
    """How runs of an experiment are shown.

    Attributes:
      experiment: the name of its package.
      title: what messages call it.
      kinds: of its methods: the field of the config that names one, and the fields that each reads.
      method: returns the name of a run's method, of the fields of its config.
      look: returns colour and dashes of a run's curve.
      baseline: the method, by its name in the config, that others are compared with.
      setting: fields besides those of `kinds` that belong to a method, as what is chosen for it on validation.
      always: fields that labels give wherever they are read, even where all runs have the same.
      names: what labels call fields; the others go by the last part of their name.
      headline: whether a committed run is shown before anybody has chosen some, by its fields.
      far: how far from a run a baseline is by their fields, where circumstances have several: the nearest is taken.
      types: what else tables and figures read of every config, by dotted name, and of what type it is.
    """

    experiment: str
    title: str
    kinds: Kinds
    method: Callable[[Fields], str]
    look: Callable[[Fields], Look]
    baseline: str
    setting: Collection[str] = ()
    always: Collection[str] = ()
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    headline: Callable[[Fields], bool] = lambda fields: False
    far: Callable[[Fields, Fields], Any] = lambda fields, of_baseline: 0
    types: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def load(self, directory: Path) -> tuple[pd.DataFrame, list[Problem]]:
        """The finished runs of the experiment below `directory` as a frame, and what is left out."""
        runs, problems = results.load(directory)
        found = []
        for run in runs:
            if reason := self.odd(run):
                problems.append(Problem(run.name, reason))
            else:
                found.append(run)
        return frame(found), sorted(problems, key=lambda problem: problem.name)

    def odd(self, run: Run) -> str:
        """Says why a run cannot be shown; empty if it can."""
        if run.experiment != self.experiment:
            return f"not a run of {self.title}"
        if reason := results.misfit(run.config, self.types):
            return reason
        fields = dotted(run.config)
        kind = fields.get(self.kinds.field)
        if kind not in self.kinds.reads:
            return f"config.{self.kinds.field}={kind!r} is none of " + ", ".join(self.kinds.reads)
        try:
            self.method(fields).encode()  # not every string is text
            self.look(fields)
        except KeyError as error:
            return f"config.{error.args[0]} is missing, or has a value that is not known"
        except (TypeError, ValueError, AttributeError) as error:
            return f"a field of its config is of another kind: {type(error).__name__}: {error}"
        return ""

    def read(self, fields: Fields) -> Fields:
        """The fields that a run reads, of all of its config."""
        return {name: value for name, value in fields.items() if self.kinds.is_read(name, fields)}

    def circumstances(self, fields: Fields) -> Fields:
        """The fields that are alike where a difference is one of methods: data, network, length and the like."""
        apart = (*self.setting, *self.kinds.of_kinds, self.kinds.field, *_NOT_KEPT_ALIKE)
        return {name: value for name, value in self.read(fields).items() if not is_of(name, apart) and not is_how(name)}

    def settings(self, found: pd.DataFrame) -> pd.Series:
        """The fields in which each run differs from others of its method, as `p = 4/3, learning rate 0.03`."""
        return self.parts(found).map(lambda parts: ", ".join(parts.values()))

    def parts(self, found: pd.DataFrame) -> pd.Series:
        """The same by the dotted names of the fields, as `{"p": "p = 4/3", "optimizer.learning_rate": ...}`.

        A value that more than two thirds of many have goes without saying.
        """
        configs = {name: dotted(run.config) for name, run in found[RUN].items()}
        methods = pd.Series({name: self.method(config) for name, config in configs.items()}, dtype=object)
        fields = {name: self.read(config) for name, config in configs.items()}
        told: dict[Any, dict[str, str]] = {}
        for _, alike in found.groupby(methods, sort=False):
            varying = {name: _usual(alike[name]) for name in differing(alike)}
            for name in alike.index:
                told[name] = {
                    field: self._shown(field, value)
                    for field, value in fields[name].items()
                    if value is not None
                    and not is_how(field)
                    and (is_of(field, self.always) or (field in varying and value != varying[field]))
                }
        return pd.Series([told[name] for name in found.index], index=found.index, dtype=object)

    def labels(self, found: pd.DataFrame) -> pd.Series:
        """The method of each run, and the fields in which it differs from its neighbours, the other runs of a frame.

        Runs that differ in nothing are told apart by their names.
        """
        methods = found[RUN].map(lambda run: self.method(dotted(run.config)))
        labels = methods + self.settings(found).map(lambda told: told and f", {told}")
        return labels.where(~labels.duplicated(keep=False), labels + " [" + labels.index.to_series() + "]")

    def references(self, found: pd.DataFrame, method: str = "") -> pd.Series:
        """The run of a method, by default the baseline, in the circumstances of each; None if there is none, or itself.

        Of several the nearest (`far`) comes first, then one with the same optimizer, then the first in the order of the
        frame.
        """
        keys = found[RUN].map(self._circumstances)
        groups: dict[str, list[Run]] = {}
        for name, run in found[RUN][found[self.kinds.field] == (method or self.baseline)].items():
            groups.setdefault(keys[name], []).append(run)

        def reference(name: Any, run: Run) -> Run | None:
            fields, optimizer = dotted(run.config), run.config.get("optimizer")

            def distance(other: Run) -> tuple[Any, bool]:
                return self.far(fields, dotted(other.config)), other.config.get("optimizer") != optimizer

            best = min(groups.get(keys[name], []), key=distance, default=None)
            return None if best is run else best

        found_by_name = {name: reference(name, run) for name, run in found[RUN].items()}
        return pd.Series(found_by_name, index=found.index, dtype=object)

    def _circumstances(self, run: Run) -> str:
        kept = self.circumstances(dotted(run.config))
        return json.dumps({name: value for name, value in kept.items() if value is not None})

    def _shown(self, field: str, value: Any) -> str:
        name = self.names.get(field, field.rpartition(".")[2].replace("_", " "))
        return shown(name, field, value)


def _usual(values: pd.Series) -> Any:
    """The value that goes without saying, of a field of runs of one method; None if there is none."""
    value, count = Counter(values).most_common(1)[0]
    return value if len(values) > _FEW and 3 * count > 2 * len(values) else None


def shown(name: str, field: str, value: Any) -> str:
    """A field as labels have it: `p = 4/3`, `learning rate 0.03`, `rescaled`, `schedule geometric`."""
    if isinstance(value, bool):
        return name if value else f"not {name}"
    equal = " = " if len(name) < 4 else " "
    return f"{name}{equal}{written(field, value)}"


def written(field: str, value: Any) -> str:
    """A value as people write it: `4/3`, `1e-3`, `(1, 2, 3)`."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, (int, float)):
        if field.rpartition(".")[2] == "p":
            return p_name(value)
        return number(value) if value > 0 else f"{value:g}"
    return (
        f"({', '.join(written('', part) for part in value)})"
        if isinstance(value, list | tuple)
        else printable(str(value))
    )
