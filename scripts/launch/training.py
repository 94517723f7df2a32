"""The training command: the same wherever it runs, and to be repeated at will, for it resumes or is done."""

import dataclasses
import hashlib
from collections.abc import Sequence

from experiments.core.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Training:
    """One run.

    Attributes:
      name: of the point of a sweep; empty for a run by itself.
      experiment: `python -m experiments.EXPERIMENT` trains it.
      config: path of the config file, with its variant.
      workdir: absolute, or in a bucket.
      overrides: further arguments, `--config.FIELD=VALUE`.
      environment: variables to set, `NAME=VALUE`.
    """

    name: str
    experiment: str
    config: str
    workdir: str
    overrides: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()

    def command(self, python: str = "python", environment: Sequence[str] = ()) -> list[str]:
        """The arguments of the command, to be quoted once for each shell on their way.

        Args:
          python: the interpreter.
          environment: variables besides the run's own.
        """
        variables = [*environment, *self.environment]
        return [
            *(["env", *variables] if variables else []),
            *(python, "-m", f"experiments.{self.experiment}"),
            f"--config={self.config}",
            f"--workdir={self.workdir}",
            *self.overrides,
        ]

    @property
    def digest(self) -> str:
        """Tells this run's workdir from others' in the names of jobs."""
        return hashlib.sha256(self.workdir.encode()).hexdigest()[:8]


def check_overrides(overrides: Sequence[str]) -> tuple[str, ...]:
    """The overrides as arguments: `config.x=1` stands for `--config.x=1`.

    Raises:
      UsageError: one of them is no option, or one that the launcher sets itself.
    """
    checked = []
    for override in overrides:
        argument = f"--{override}" if override.startswith("config.") else override
        name = argument.partition("=")[0]
        if not argument.startswith("--"):
            raise UsageError(
                f"override {override!r} does not begin with --: if it belongs to the one before it, quote it"
            )
        if name in ("--config", "--workdir"):
            raise UsageError(f"override {override!r}: {name} is an option of the launcher, to be given before --")
        checked.append(argument)
    return tuple(checked)
