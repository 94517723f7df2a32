"""How the runs of an experiment are named, coloured and compared. Science knows nothing of this: `report.py` has it."""

import dataclasses
import functools
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.core.config import COMPUTED_HOW
from experiments.core.errors import printable
from experiments.core.kinds import Fields, Kinds, is_of
from experiments.core.report import results
from experiments.core.report.markdown import number, p_name
from experiments.core.report.results import Problem, Run, grouped

# Fields that say how a run is carried out and what it keeps: what it learns does not depend on them.
# `export_pictures`, `export_probe` and `feed` are fields of committed runs alone.
HOW = (
    *("accelerator", "checkpoint_every", "data_dir", "download", "eval_batch_size", "eval_every", "export_examples"),
    *("export_probe", "export_pictures", "export_params", "features.directory", "feed", "input.prefetch"),
    *("input.workers", "steps_per_dispatch", "tensorboard", *COMPUTED_HOW),
)
# Fields that no comparison of methods is to keep alike: what is tuned, and what computes the same numbers otherwise.
_NOT_KEPT_ALIKE = ("optimizer", "accumulate", "model.remat", "model.scan", "moe.dispatcher", "validation_size")
_FEW = 4  # runs of a method, of which labels give every field that differs


@dataclasses.dataclass(frozen=True, eq=False)
class Presentation:
    """How runs of an experiment are shown.

    Attributes:
      experiment: the name of its package.
      kinds: of its methods: the field of the config that names one, and the fields that each reads.
      method: returns the name of a run's method, of the fields of its config.
      baseline: the method, by its name in the config, that others are compared with.
      order: returns the place of a run in tables and figures.
      setting: fields besides those of `kinds` that belong to a method, as what is chosen for it on validation.
      always: fields that labels give wherever they are read, even where all runs have the same.
      names: what labels call fields; the others go by the last part of their name.
      far: how far from a run a baseline is by their fields, where circumstances have several: the nearest is taken.
    """

    experiment: str
    kinds: Kinds
    method: Callable[[Fields], str]
    baseline: str
    order: Callable[[Run], Any] = lambda run: run.name
    setting: Collection[str] = ()
    always: Collection[str] = ()
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    far: Callable[[Fields, Fields], Any] = lambda fields, of_baseline: 0

    def load(self, directory: Path) -> tuple[list[Run], list[Problem]]:
        """The finished runs of the experiment below `directory`, in order, and what is left out, by name."""
        runs, problems = results.load(directory)
        odd = {run.name: self.odd(run) for run in runs}
        problems += [Problem(name, reason) for name, reason in odd.items() if reason]
        shown = sorted((run for run in runs if not odd[run.name]), key=self.order)
        return shown, sorted(problems, key=lambda problem: problem.name)

    def odd(self, run: Run) -> str:
        """Says why a run cannot be shown; empty if it can."""
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
        """The fields that a run reads, of all of its config."""
        return {name: value for name, value in fields.items() if self.kinds.is_read(name, fields)}

    def settings(self, runs: Sequence[Run], *, given: Collection[str] = ()) -> list[str]:
        """The fields in which each run differs from others of its method, as `p = 4/3, learning rate 0.03`.

        A value that more than two thirds of many have goes without saying, and so do the fields that are `given`.
        """
        return [", ".join(parts.values()) for parts in self._parts(runs, given)]

    def _parts(self, runs: Sequence[Run], given: Collection[str]) -> list[dict[str, str]]:
        """The same by the dotted names of the fields, as `{"p": "p = 4/3", "optimizer.learning_rate": ...}`."""
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
            and not is_of(name, (*HOW, *given))
            and self.kinds.is_read(name, fields)
        }

    def labels(self, runs: Sequence[Run]) -> list[str]:
        """The method of each run, and the fields in which it differs from its neighbours."""
        return [", ".join(parts.values()) for parts in self.parts_of_labels(runs)]

    def parts_of_labels(self, runs: Sequence[Run]) -> list[dict[str, str]]:
        """The same by field, the method as `(method)`; runs that differ in nothing have their `(name)`, too.

        A run whose method has no name goes by its own.
        """
        named = zip(runs, self._parts(runs, given=()), strict=True)
        parts = [{"(method)": self.method(run.fields) or run.name, **fields} for run, fields in named]
        labels = Counter(", ".join(its.values()) for its in parts)
        return [
            its | ({"(name)": f"[{run.name}]"} if labels[", ".join(its.values())] > 1 else {})
            for run, its in zip(runs, parts, strict=True)
        ]

    def references(self, runs: Sequence[Run], method: str = "") -> dict[str, Run | None]:
        """By name the run of a method, by default the baseline, in the circumstances of each; None without another.

        Of several the nearest (`far`) comes first, then one with the same optimizer, then the first.
        """
        keys = {run.name: _circumstances(self, run) for run in runs}
        candidates = [run for run in runs if run.fields.get(self.kinds.field) == (method or self.baseline)]
        groups = grouped(candidates, lambda run: keys[run.name])

        def reference(run: Run) -> Run | None:
            def distance(other: Run) -> tuple[Any, bool]:
                return self.far(run.fields, other.fields), other.config.get("optimizer") != run.config.get("optimizer")

            best = min(groups.get(keys[run.name], []), key=distance, default=None)
            return None if best is run else best

        return {run.name: reference(run) for run in runs}


@functools.lru_cache(maxsize=4096)
def _circumstances(presentation: Presentation, run: Run) -> str:
    """The fields that are alike where a difference is one of methods, as JSON: data, network, length and the like."""
    kinds = presentation.kinds
    apart = (*presentation.setting, *kinds.of_kinds, kinds.field, *_NOT_KEPT_ALIKE, *HOW)
    return json.dumps(
        {
            name: value
            for name, value in run.fields.items()
            if value is not None and not is_of(name, apart) and kinds.is_read(name, run.fields)
        }
    )


def _usual(configs: Sequence[Fields]) -> Fields:
    """The fields that not all configs of a method have alike, with the value that goes without saying, or None."""
    found: Fields = {}
    for name in dict.fromkeys(name for config in configs for name in config):
        values = [config.get(name) for config in configs]
        keys = [str(value) if isinstance(value, list) else value for value in values]
        key, count = Counter(keys).most_common(1)[0]
        if count < len(configs):
            found[name] = values[keys.index(key)] if len(configs) > _FEW and 3 * count > 2 * len(configs) else None
    return found


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
    if isinstance(value, list | tuple):
        return f"({', '.join(written('', part) for part in value)})"
    return printable(str(value))
