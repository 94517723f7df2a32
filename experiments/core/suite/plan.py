"""A suite: named runs, some of which compete, some of which wait for a winner or for parameters."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_collections

from experiments.core import config as config_lib
from experiments.core.record.workdir import Workdir
from experiments.core.training import experiment

Fields = Mapping[str, Any]  # of the config, by dotted name

_ROOT = Path(__file__).resolve().parents[3]


@dataclasses.dataclass(frozen=True)
class SuiteRun:
    """One workdir.

    Attributes:
      name: of the workdir, below the directory of the suite.
      base: fields of the config.
      setting: further fields; in a sweep, those that are being chosen.
      candidate_for: the choice for which this run competes, on validation.
      best_of: the choice whose winning setting this run takes, before `setting`; its candidates come earlier.
      variant: the argument of the config.
      weights_of: the run whose exported parameters are to be `config.pretrained`.
      chosen_by: the metric that decides the choice, where it is not that of the suite.
    """

    name: str
    base: Fields
    setting: Fields = dataclasses.field(default_factory=dict)
    candidate_for: str | None = None
    best_of: str | None = None
    variant: str = ""
    weights_of: str | None = None
    chosen_by: str | None = None


@dataclasses.dataclass(frozen=True)
class Suite:
    """The suites of an experiment.

    Attributes:
      recipe: of the experiment.
      presets: lists of runs on offer, by name.
      chosen_by: the metric of the last row that decides a choice; the lower the better.
      shown: metrics of the last row that are printed after a run, those it has, in percent.
      report: writes table and figures of the runs below a directory, and returns the files written.
    """

    recipe: experiment.Recipe
    presets: Mapping[str, Callable[[], Sequence[SuiteRun]]]
    chosen_by: str
    shown: Sequence[str]
    report: Callable[[Path], list[Path]]

    @property
    def package(self) -> str:
        """`python -m <package>` runs it."""
        return f"experiments.{self.recipe.name}.suite"

    def config(self, run: SuiteRun, out: Path, setting: Fields | None = None) -> ml_collections.ConfigDict:
        """The config of a run below `out`: base, and `setting` (its own if left out), over the experiment's."""
        path = str(_ROOT / f"configs/{self.recipe.name}.py")
        config = config_lib.load(f"{path}:{run.variant}" if run.variant else path)
        config.update_from_flattened_dict(dict(run.base) | dict(run.setting if setting is None else setting))
        if run.weights_of is not None:
            # Not absolute, so that the config says the same wherever the repository lies.
            config.pretrained = str(out / run.weights_of / Workdir(out).params.name)
        return config


def find(package: str) -> Suite:
    """The suite that `python -m <package>` runs: `SUITE` of the module, or of the package's `__main__`."""
    module = importlib.import_module(package)
    return module.SUITE if hasattr(module, "SUITE") else importlib.import_module(f"{package}.__main__").SUITE
