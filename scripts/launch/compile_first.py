"""Compiles the step of each run for its type of TPU, before one is asked for: `scripts.aot` says whether it fits."""

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.core.errors import UsageError
from scripts.launch.code import ROOT
from scripts.launch.process import Console, error_line
from scripts.launch.training import Training

_ENVIRONMENT = ".venv-tpu"  # of `make install VENV=.venv-tpu JAX=tpu`: the compiler is in it
_DOES_NOT_FIT = 3
_RESULTS = "runs/compiled"


def compile_first(trainings: Sequence[Training], type_: str, console: Console) -> None:
    """Runs `python -m scripts.aot` for each, one after the other: TPU's compiler takes both cores of a small machine.

    Args:
      trainings: the runs.
      type_: of the TPU.
      console: that starts the compilations.

    Raises:
      UsageError: one of them does not fit, or cannot be compiled for this type, or the compiler is not here.
    """
    python = python_with_compiler()
    for training in trainings:
        name = training.name or training.experiment
        if not console.dry_run:
            console.say(f"compiling {name} for {type_}, some minutes the first time: python -m scripts.aot says what")
        done = console.ask(command(training, type_, python))
        if done.returncode == _DOES_NOT_FIT:
            for line in done.stdout.splitlines():
                console.say(line)
            raise UsageError(f"{name} does not fit on {type_}: see above for what to change")
        if done.returncode:
            said = error_line(done.stderr + done.stdout).removeprefix("error: ")
            raise UsageError(f"{name} could not be compiled for {type_}: {said}")
        for line in done.stdout.splitlines():
            console.say(line)


def command(training: Training, type_: str, python: str) -> list[str]:
    """What compiles a run."""
    return [
        *(["env", *training.environment] if training.environment else []),
        *(python, "-m", "scripts.aot", training.experiment, f"--config={training.config}", f"--type={type_}"),
        *(f"--results={_RESULTS}", "--no_evaluation", "--", *training.overrides),
    ]


def python_with_compiler() -> str:
    """Of the environment made for it, where there is one; else this one, which says what it lacks."""
    made: Path = ROOT / _ENVIRONMENT / "bin" / "python"
    return str(made) if made.exists() else sys.executable
