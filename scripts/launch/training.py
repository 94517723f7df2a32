"""The training command: the same wherever it runs, and to be repeated at will, for it resumes or is done."""

import dataclasses
import hashlib
from pathlib import Path

from experiments.core.record.files import is_remote

LOGS = Path("runs/logs")  # of runs in buckets


@dataclasses.dataclass(frozen=True)
class Training:
    """One run: an experiment with its config, in a workdir that is absolute or in a bucket."""

    name: str  # of the point of a sweep; empty for a run by itself
    experiment: str
    config: str  # path of the file, with its variant
    workdir: str
    overrides: tuple[str, ...] = ()  # `--config.FIELD=VALUE`
    environment: tuple[str, ...] = ()  # `NAME=VALUE`

    @property
    def arguments(self) -> list[str]:
        """Those of the training command."""
        return [f"--config={self.config}", f"--workdir={self.workdir}", *self.overrides]

    def command(self, python: str = "python") -> list[str]:
        """The training command by an interpreter, to be quoted once for each shell on its way."""
        variables = ["env", *self.environment] if self.environment else []
        return [*variables, python, "-m", f"experiments.{self.experiment}", *self.arguments]

    @property
    def label(self) -> str:
        """The name of the run on the terminal."""
        return self.name or self.experiment

    @property
    def logs(self) -> Path:
        """The directory of what the run prints: in its workdir, or here if that is in a bucket."""
        if is_remote(self.workdir):
            return LOGS / f"{self.workdir.rpartition('/')[2]}-{self.digest}"
        return Path(self.workdir) / "logs"

    @property
    def digest(self) -> str:
        """Tells this run's workdir from others in the names of jobs."""
        return hashlib.sha256(self.workdir.encode()).hexdigest()[:8]
