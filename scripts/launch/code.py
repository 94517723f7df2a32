"""The code that is sent out: a commit, without its history, results and tests."""

import dataclasses
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from experiments.core.errors import UsageError
from scripts.launch.process import Console

ROOT = Path(__file__).resolve().parents[2]
_PARTS = (".", ":(exclude)results", ":(exclude)tests")


@dataclasses.dataclass(frozen=True)
class Code:
    """A commit, by its full name."""

    commit: str

    @property
    def archive(self) -> Path:
        """A local file, to be made by `pack`."""
        return Path(tempfile.gettempdir()) / f"sparse-topk-{self.commit[:12]}.tar.gz"

    @property
    def directory(self) -> str:
        """Where it is to be unpacked, relative to a home."""
        return f"sparse-topk/{self.commit[:12]}"

    @staticmethod
    def of(commit: str | None, config: str) -> "Code":
        """The commit asked for; the one that is checked out if None, and if nothing is changed.

        Raises:
          UsageError: there is no such commit, it lacks the config file, or it is not what this checkout holds.
        """
        if commit is None and (changed := _git("status", "--porcelain", "--", ".", ":(exclude)results")):
            raise UsageError(
                f"{len(changed.splitlines())} files are changed or new ({changed.splitlines()[0].strip()}, ...), but "
                "what is sent out is a commit: commit them, or say --commit=HEAD to launch without them"
            )
        try:
            full = _git("rev-parse", "--verify", "--end-of-options", f"{commit or 'HEAD'}^{{commit}}")
        except subprocess.CalledProcessError as error:
            raise UsageError(f"--commit={commit}: there is no such commit") from error
        try:
            _git("cat-file", "-e", f"{full}:{config.partition(':')[0]}")
        except subprocess.CalledProcessError as error:
            raise UsageError(f"--config={config}: there is no such file in commit {full[:12]}") from error
        return Code(full)

    def pack(self, console: Console) -> None:
        """Makes the archive, at once for whoever reads it: another launcher may send out the same commit."""
        made = f"{self.archive}.{os.getpid()}"
        output = f"--output={made}"
        console.run(["git", "-C", str(ROOT), "archive", "--format=tar.gz", output, self.commit, "--", *_PARTS])
        console.run(["mv", made, str(self.archive)])

    def install(self, directory: str, extra: str) -> str:
        """A shell command that makes the environment for the code unpacked in `directory`."""
        return shlex.join(["bash", f"{directory}/scripts/launch/install.sh", extra, self.commit])


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()
