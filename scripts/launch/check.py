"""Asks the experiment itself whether it can run what is to be launched, before anything is created and paid for."""

import contextlib
import dataclasses
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from etils import epy

from experiments.core.errors import UsageError
from scripts.launch.process import USAGE, Console, error_line
from scripts.launch.training import Training

with epy.lazy_imports():  # to show how far runs are needs none of what trains
    import jax

    from experiments.core.training import train
    from scripts.aot import runs

# What JAX calls a device, by how the name of a TPU's type begins, of those that its number counts: cores or chips.
_DEVICES = {"v2-": 1.0, "v3-": 1.0, "v4-": 0.5, "v5litepod-": 1.0, "v5p-": 0.5, "v6e-": 1.0}


def tpu_devices(type_: str) -> int | None:
    """The devices of a TPU of the type, as `v5p-16`, which has 8; None if it is not known here."""
    shares = [share for start, share in _DEVICES.items() if re.fullmatch(re.escape(start) + r"\d+", type_)]
    return int(int(type_.rpartition("-")[2]) * shares[0]) if shares else None


def tpu_processes(type_: str) -> int:
    """The hosts of a TPU of a type that is known here; up to 8 cores or chips have one."""
    number = int(type_.rpartition("-")[2])
    return 1 if number <= 8 else number // (4 if type_.startswith(("v5litepod-", "v6e-")) else 8)


def validate(trainings: Sequence[Training]) -> None:
    """Reads the command line of each run as its experiment will, and checks all fields but those of the mesh.

    What depends on how many devices there are is for `check`.

    Raises:
      UsageError: an override names no field, or has a value that the field cannot have.
    """
    jax.config.update("jax_platforms", "cpu")  # in this process alone
    recipe = runs.recipe_of(trainings[0].experiment)
    for training in trainings:
        with _named(training):
            with contextlib.redirect_stdout(io.StringIO()):  # what it says of a value the run will say, too
                config = runs.config_of(recipe, training.config, training.overrides)
            with config.unlocked():
                if "mesh" in config:
                    config.mesh = dict.fromkeys(config.mesh, 1)
            train.check_fields(recipe, config, 1)


@contextlib.contextmanager
def _named(training: Training) -> Iterator[None]:
    """Within it, mistakes are those of a run, which they are to name where it is one of several."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{training.name}: {error}" if training.name else str(error)) from error


def check(trainings: Sequence[Training], num_devices: int, num_processes: int, console: Console) -> None:
    """Runs `python -m experiments.EXPERIMENT ... --check` for each, on as many CPUs as it will have accelerators.

    Args:
      trainings: the runs.
      num_devices: of a run.
      num_processes: that share them.
      console: that starts the checks.

    Raises:
      UsageError: the config of one of them cannot be run, or its workdir holds another run.
    """
    variables = ("JAX_PLATFORMS=cpu", f"JAX_NUM_CPU_DEVICES={num_devices}")

    def reason(training: Training) -> str | None:
        here = dataclasses.replace(training, environment=(*training.environment, *variables))
        done = console.ask([*here.command(sys.executable), "--check", f"--check_processes={num_processes}"])
        if not done.returncode:
            return None
        said = error_line(done.stderr + done.stdout)
        if done.returncode == USAGE:
            return said.removeprefix("error: ")
        return f"the config could not be checked here ({said}); --no_check launches without"

    if trainings and not console.dry_run:
        console.say(f"checking what is to be run, for {num_devices} devices, by the code of this checkout")
    with ThreadPoolExecutor(1 if console.dry_run else os.cpu_count()) as pool:
        for training, found in zip(trainings, pool.map(reason, trainings), strict=True):
            if found:
                with _named(training):
                    raise UsageError(found)
