"""Compiles the step of each run for its type of TPU before one is asked for, to see whether it fits."""

import sys
from collections.abc import Sequence

from experiments.core.errors import UsageError
from scripts.launch.process import Console, error_line
from scripts.launch.training import Training

PYTHON = sys.executable  # the compiler's own environment is found from there
_DOES_NOT_FIT = 3


def compile_first(trainings: Sequence[Training], type_: str, console: Console) -> None:
    """Compiles each run for a type of TPU, one after the other: the compiler takes both cores of a small machine.

    Raises:
      UsageError: one of them does not fit, or cannot be compiled for this type, or the compiler is not here.
    """
    for training in trainings:
        what = [training.experiment, f"--config={training.config}", f"--type={type_}", "--no_evaluation"]
        variables = ["env", *training.environment] if training.environment else []
        done = console.ask([*variables, PYTHON, "-m", "scripts.compile", *what, *training.overrides])
        if done.returncode not in (0, _DOES_NOT_FIT):
            said = error_line(done.stderr + done.stdout).removeprefix("error: ")
            raise UsageError(f"{training.label} could not be compiled for {type_}: {said}")
        for line in done.stdout.splitlines():
            console.say(line)
        if done.returncode:
            raise UsageError(f"{training.label} does not fit on {type_}: see above for what to change")
