"""Checks, before anything is created and paid for, that each run can be trained on its machine, and fits if asked."""

import importlib
import shlex
import subprocess
import sys
from collections.abc import Sequence

import jax
import ml_collections

from experiments.core import cli
from experiments.core.config import require
from experiments.core.errors import UsageError
from experiments.core.input import sources
from experiments.core.record import chips
from experiments.core.record.files import absolute, reaching
from experiments.core.record.workdir import Workdir
from experiments.core.training import mesh, train
from scripts.launch.process import Console
from scripts.launch.scheduler import Platform
from scripts.launch.training import Training


def check(trainings: Sequence[Training], platform: Platform, console: Console) -> None:
    """Reads the command line of each run as its experiment does, and checks config and workdir for the machine.

    Raises:
      UsageError: one of them cannot be trained there; it is named if there are several.
    """
    jax.config.update("jax_platforms", "cpu")  # in this process alone
    recipe = importlib.import_module(f"experiments.{trainings[0].experiment}.experiment").RECIPE
    num_devices, num_processes = platform.num_devices, platform.num_processes
    if platform.type:
        machine = chips.parse(platform.type)
        num_devices, num_processes = machine.count, machine.processes
    if not num_devices and not console.dry_run:
        console.say("the mesh is not checked here: how many devices there will be is not known")
    for training in trainings:
        try:
            _, config = cli.parse(recipe, training.arguments)
            if num_devices:
                there = mesh.of_devices(config, num_devices, num_processes)
            else:
                there = config.copy_and_resolve_references()
                with there.unlocked():
                    if "mesh" in there:
                        there.mesh = dict.fromkeys(there.mesh, 1)
            train.check_fields(recipe, there, num_devices or 1)
            if platform.far and "data_dir" in config:
                _check_data(config, training, platform, console)
            if not console.dry_run:
                Workdir(training.workdir).check(config)
        except UsageError as error:
            raise UsageError(f"{training.name}: {error}" if training.name else str(error)) from error


def _check_data(config: ml_collections.ConfigDict, training: Training, platform: Platform, console: Console) -> None:
    """Checks that workers will have the data set: in the folder that `--data` names, or by a download."""
    name = config.dataset
    if platform.data:
        place = absolute(platform.data) / name
        with reaching(place, "--data"):
            if not console.dry_run and not place.exists():
                raise UsageError(f"--data={platform.data} has no data set {name!r}: see scripts/launch/README.md")
    elif not (config.data_dir or any(variable.startswith("TFDS_DATA_DIR=") for variable in training.environment)):
        allowed = "one that workers can download, or --data=gs://BUCKET/FOLDER must have it"
        require(config.download and sources.can_be_downloaded(name), "dataset", name, allowed)


def compile_first(trainings: Sequence[Training], type_: str, console: Console) -> None:
    """Compiles each run for a type of TPU, one after the other: the compiler takes both cores of a small machine.

    Raises:
      UsageError: one of them does not fit, or cannot be compiled for this type, or the compiler is not here.
    """
    for training in trainings:
        what = [training.experiment, f"--config={training.config}", f"--type={type_}", "--no_evaluation"]
        variables = ["env", *training.environment] if training.environment else []
        command = [*variables, sys.executable, "-m", "scripts.compile", *what, *training.overrides]
        if console.dry_run:
            console.say(shlex.join(command))
        elif subprocess.call(command):
            raise UsageError(f"{training.label} does not fit on {type_}, or cannot be compiled for it: see above")
