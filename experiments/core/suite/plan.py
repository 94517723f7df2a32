"""A suite: named runs, some of which compete, some of which wait for a winner or for parameters."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_collections

from experiments.core import config as config_lib
from experiments.core.errors import UsageError
from experiments.core.record.workdir import Workdir
from experiments.core.training import experiment

Fields = Mapping[str, Any]  # of the config, by dotted name

_ROOT = Path(__file__).resolve().parents[3]


@dataclasses.dataclass(frozen=True)
class SuiteRun:
    """One workdir."""

    name: str  # of the workdir, below the directory of the suite
    base: Fields
    setting: Fields = dataclasses.field(default_factory=dict)  # over `base`; in a sweep, what is being chosen
    candidate_for: str | None = None  # the choice for which this run competes, on validation
    best_of: str | None = None  # the choice whose winning setting goes before `setting`; its candidates come earlier
    variant: str = ""  # the argument of the config
    weights_of: str | None = None  # the run whose exported parameters are to be `config.pretrained`
    chosen_by: str | None = None  # the metric that decides the choice, where it is not that of the suite


@dataclasses.dataclass(frozen=True)
class Suite:
    """The suites of an experiment."""

    recipe: experiment.Recipe
    presets: Mapping[str, Callable[[], Sequence[SuiteRun]]]  # lists of runs on offer, by name
    chosen_by: str  # the metric of the last row that decides a choice; the lower the better
    shown: Sequence[str]  # metrics of the last row that are printed after a run, those it has, in percent
    report: Callable[[Path], list[Path]]  # writes table and figures of the runs below a directory; returns the files

    @property
    def package(self) -> str:
        """`python -m <package>` runs it."""
        return f"experiments.{self.recipe.name}.suite"

    def config(self, run: SuiteRun, out: Path, setting: Fields | None = None) -> ml_collections.ConfigDict:
        """The config of a run below `out`: base, and `setting` (its own if left out), over the experiment's.

        Raises `UsageError` for a field that the experiment's config does not have.
        """
        path = str(_ROOT / f"configs/{self.recipe.name}.py")
        config = config_lib.load(f"{path}:{run.variant}" if run.variant else path)
        fields = dict(run.base) | dict(run.setting if setting is None else setting)
        if unknown := fields.keys() - dict(config_lib.leaves(config.to_dict(), prefix="")).keys():
            raise UsageError(f"{run.name}: the config has no field {min(unknown)!r}, which its setting has")
        config.update_from_flattened_dict(fields)
        if run.weights_of is not None:
            # Not absolute, so that the config says the same wherever the repository lies.
            config.pretrained = str(out / run.weights_of / Workdir(out).params.name)
        return config


def find(package: str) -> Suite:
    """The suite that `python -m <package>` runs: `SUITE` of the module, or of the package's `__main__`."""
    module = importlib.import_module(package)
    return module.SUITE if hasattr(module, "SUITE") else importlib.import_module(f"{package}.__main__").SUITE
