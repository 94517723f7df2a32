"""The trainer's own step and evaluation, of a config with its overrides, for a slice."""

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

import ml_collections
from absl import flags

from experiments.core import cli
from experiments.core import config as config_lib
from experiments.core.errors import UsageError
from experiments.core.input.outline import outline
from experiments.core.training import mesh as mesh_lib
from experiments.core.training import train
from experiments.core.training.experiment import Recipe
from experiments.core.training.program import Program
from scripts.aot.hardware import Slice


def recipe_of(experiment: str) -> Recipe:
    """The recipe of a package under `experiments`.

    Raises:
      UsageError: there is none.
    """
    name = f"experiments.{experiment}.experiment"
    if not experiment.isidentifier() or importlib.util.find_spec(f"experiments.{experiment}") is None:
        raise UsageError(f"{experiment!r} is not an experiment: there is no experiments/{experiment}")
    try:
        return importlib.import_module(name).RECIPE
    except (ModuleNotFoundError, AttributeError) as error:
        raise UsageError(f"{experiment!r} is not an experiment: {name} has no RECIPE") from error


def config_of(recipe: Recipe, path: str, overrides: Sequence[str]) -> ml_collections.ConfigDict:
    """The config that `python -m experiments.NAME --config=PATH OVERRIDES` would train.

    Raises:
      UsageError: as that command.
    """
    command = cli.Command(recipe, flags.FlagValues(), ["aot", f"--config={path}", "--workdir=none", *overrides])
    command.parse()
    return command.config


def sized(config: ml_collections.ConfigDict, slice_: Slice) -> ml_collections.ConfigDict:
    """The config with the mesh that it has on a slice, and without weights to start from.

    Raises:
      UsageError: it has none.
    """
    config = mesh_lib.of_devices(mesh_lib.of_processes(config, slice_.processes), slice_.count)
    if config.get("pretrained"):
        config = config.copy_and_resolve_references()
        config.pretrained = ""  # these change the first values alone, and need not be here
    return config


def program_of(recipe: Recipe, config: ml_collections.ConfigDict, slice_: Slice, devices: Sequence[Any]) -> Program:
    """What the trainer would compile on a slice, of which `devices` are the compiler's.

    Raises:
      UsageError: the config cannot be run there.
    """
    config = sized(config, slice_)
    train.check_fields(recipe, config, slice_.count)
    with config_lib.reading(recipe.name):
        return Program(recipe, config, outline(config), devices if "mesh" in config else devices[:1])
