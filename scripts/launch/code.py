"""The code that is sent out: a commit, without its history, results and tests."""

import argparse
import dataclasses
import shlex
import subprocess
import tempfile
from pathlib import Path

from experiments.core.errors import UsageError
from scripts.arguments import matching
from scripts.launch.process import Console

ROOT = Path(__file__).resolve().parents[2]
_PARTS = (".", ":(exclude)results", ":(exclude)tests")


BUCKETS = "/tmp/buckets"  # where workers have them, each by its name


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the platforms that code is sent to."""
    prepare_help = "shell command for every worker, before training, at each attempt: it must be repeatable"
    parser.add_argument("--prepare", metavar="COMMAND", help=prepare_help)
    bucket = matching(r"gs://[^/]+(/.*)?", "of the form gs://BUCKET/FOLDER")
    data_help = f"a folder with what TFDS has stored: TPU VMs mount it by gcsfuse, clusters have it below {BUCKETS}"
    parser.add_argument("--data", type=bucket, metavar="gs://BUCKET/FOLDER", help=data_help)
    parser.add_argument("--commit", help="to send out; left out: what is checked out, if nothing is changed")


def mounted(data: str) -> str:
    """The directory in which a worker has a folder of a bucket."""
    return f"{BUCKETS}/{data.removeprefix('gs://').rstrip('/')}"


def mount(data: str) -> str:
    """A shell command that mounts the bucket of a folder, unless it is mounted."""
    bucket = data.split("/")[2]
    place = shlex.quote(f"{BUCKETS}/{bucket}")
    gcsfuse = f"gcsfuse --implicit-dirs {shlex.quote(bucket)} {place}"
    return f"mkdir -p {place} && {{ mountpoint -q {place} || {gcsfuse}; }}"


@dataclasses.dataclass(frozen=True)
class Code:
    """A commit, by its full name, and the shell command that prepares a worker."""

    commit: str
    preparation: str | None = None

    @property
    def archive(self) -> Path:
        """A local file, to be made by `pack`."""
        return Path(tempfile.gettempdir()) / f"sparse-topk-{self.commit[:12]}.tar.gz"

    @property
    def directory(self) -> str:
        """Directory to unpack it in, relative to a home."""
        return f"sparse-topk/{self.commit[:12]}"

    @staticmethod
    def of(options: argparse.Namespace) -> "Code":
        """The commit asked for; the one that is checked out if none is, and if nothing is changed.

        Raises:
          UsageError: there is no such commit, it lacks the config file, or it is not what this checkout holds.
        """
        commit, config = options.commit, options.config
        if commit is None and (changed := _git("status", "--porcelain", "--", ".", ":(exclude)results")):
            raise UsageError(
                f"{len(changed.splitlines())} files are changed or new ({changed.splitlines()[0].strip()}, ...), but "
                "what is sent out is a commit: commit them, or say --commit=HEAD to launch without them"
            )
        wrong = f"--commit={commit}: there is no such commit"
        full = _git("rev-parse", "--verify", "--end-of-options", f"{commit or 'HEAD'}^{{commit}}", wrong=wrong)
        wrong = f"--config={config}: there is no such file in commit {full[:12]}"
        _git("cat-file", "-e", f"{full}:{config.partition(':')[0]}", wrong=wrong)
        return Code(full, options.prepare)

    def pack(self, console: Console) -> None:
        """Makes the archive, whole or not at all: another launcher may send the same commit meanwhile."""
        git = shlex.join(["git", "-C", str(ROOT), "archive", "--format=tar.gz", self.commit, "--", *_PARTS])
        path = shlex.quote(str(self.archive))
        console.do(["sh", "-c", f"{git} > {path}.$$ && mv {path}.$$ {path}"], "git")

    def install(self, directory: str) -> str:
        """A shell command that makes the environment for the code unpacked in `directory`, and prepares the worker."""
        install = shlex.join(["bash", f"{directory}/scripts/launch/install.sh", "tpu", self.commit])
        return f"{install} && ({self.preparation})" if self.preparation else install


def _git(*arguments: str, wrong: str = "this is no checkout of git") -> str:
    """The output of git; a mistake of the user's, `wrong`, if it fails."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(wrong)
    return done.stdout.strip()
