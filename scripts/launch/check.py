"""Asks the experiment itself whether it can run what is to be launched, before anything is created and paid for."""

import dataclasses
import os
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from experiments.core.errors import UsageError
from scripts.launch.process import USAGE, Console, error_line
from scripts.launch.training import Training

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
                raise UsageError(f"{training.name}: {found}" if training.name else found)
