"""Compiles the step of each run for its type of TPU, before one is asked for: `scripts.aot` says whether it fits."""

import sys
from collections.abc import Sequence

from experiments.core.errors import UsageError
from scripts.launch.code import ROOT
from scripts.launch.process import Console, error_line
from scripts.launch.training import Training

_ENVIRONMENT = ROOT / ".venv-tpu" / "bin" / "python"  # of `make install VENV=.venv-tpu JAX=tpu`, with TPU's compiler
_DOES_NOT_FIT = 3


def compile_first(trainings: Sequence[Training], type_: str, console: Console) -> None:
    """Compiles each run for a type of TPU, one after the other: the compiler takes both cores of a small machine.

    Raises:
      UsageError: one of them does not fit, or cannot be compiled for this type, or the compiler is not here.
    """
    python = python_with_compiler()
    for training in trainings:
        what = [training.experiment, f"--config={training.config}", f"--type={type_}", "--results=runs/compiled"]
        variables = ["env", *training.environment] if training.environment else []
        done = console.ask(
            [*variables, python, "-m", "scripts.aot", *what, "--no_evaluation", "--", *training.overrides]
        )
        if done.returncode not in (0, _DOES_NOT_FIT):
            said = error_line(done.stderr + done.stdout).removeprefix("error: ")
            raise UsageError(f"{training.label} could not be compiled for {type_}: {said}")
        for line in done.stdout.splitlines():
            console.say(line)
        if done.returncode:
            raise UsageError(f"{training.label} does not fit on {type_}: see above for what to change")


def python_with_compiler() -> str:
    """The Python of the environment made for it, where there is one; else this one, which says what it lacks."""
    return str(_ENVIRONMENT) if _ENVIRONMENT.exists() else sys.executable
