"""Jobs of a cluster run by SLURM, most often with GPUs; code, environment and workdir lie on a shared disk."""

import argparse
import contextlib
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from scripts.arguments import at_least
from scripts.launch.code import ROOT
from scripts.launch.process import Console, Failed, Stopped, error_line, error_lines, together
from scripts.launch.scheduler import label
from scripts.launch.training import Training

_SCRIPT = Path(__file__).with_name("slurm.sh")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this platform."""
    parser.add_argument("--nodes", type=at_least(1), default=1)
    parser.add_argument(
        "--gpus_per_node", type=at_least(0), default=0, help="one process for each; 0: one process a node"
    )
    parser.add_argument("--time", help="as sbatch's")
    parser.add_argument("--sbatch_flag", action="append", default=[], metavar="FLAG", help="for sbatch; repeatable")


class Slurm:
    """See `scheduler.Platform`."""

    retries = 3
    leaves_running = True

    def __init__(self, options: argparse.Namespace, console: Console):
        self._options, self._console = options, console
        self.num_devices = options.nodes * options.gpus_per_node or None
        self.num_processes = options.nodes * (options.gpus_per_node or 1)

    def prepare(self) -> None:
        """Nothing is needed."""

    def release(self, slot: int, *, keep: bool) -> bool:
        """Jobs end by themselves."""
        return True

    def train(self, training: Training, slot: int, logs: Path) -> None:
        """Submits a job and waits for its end."""
        log = (logs / "slurm.log").absolute()
        if not self._console.dry_run:
            log.parent.mkdir(parents=True, exist_ok=True)
        begin = log.stat().st_size if log.exists() else 0
        with self._followed(training, log, begin):
            job = self._console.stream(self._command(training, log), f"[{label(training)}] ", None)
            try:
                together(self._console, {"job": job})
            except Stopped as stopped:
                # sbatch that has not said so when it was ended has submitted nothing.
                raise Stopped(goes_on=any("Submitted batch job" in line for line in job.lines)) from stopped
            except Failed as error:
                said = _after(log, begin)
                reason = _reason(said) if said.strip() else str(error)
                raise Failed(f"job: {reason}", error.status, again=error.again) from error

    def _command(self, training: Training, log: Path) -> list[str]:
        options = self._options
        tasks = options.gpus_per_node or 1
        return [
            *("sbatch", "--wait", f"--job-name=sparse-topk-{training.digest}"),
            # A job that an earlier launcher has left ends first; then this one finds the run done, or goes on with it.
            "--dependency=singleton",
            *("--requeue", "--open-mode=append", f"--output={str(log).replace('%', '%%')}", f"--chdir={ROOT}"),
            # Time to save before the time is over.
            "--signal=TERM@120",
            *(f"--nodes={options.nodes}", f"--ntasks-per-node={tasks}"),
            *([f"--gpus-per-node={options.gpus_per_node}"] if options.gpus_per_node else []),
            *([f"--time={options.time}"] if options.time else []),
            *options.sbatch_flag,
            *(str(_SCRIPT), *training.command(sys.executable)),
        ]

    @contextlib.contextmanager
    def _followed(self, training: Training, log: Path, begin: int) -> Iterator[None]:
        """Passes on what a job writes to its log."""
        ended = threading.Event()

        def follow() -> None:
            place, last = begin, False
            while not last:
                last = ended.wait(1.0)  # once more after the end
                *lines, rest = _after(log, place).split("\n")
                place += sum(len(line.encode(errors="surrogateescape")) + 1 for line in lines)
                for line in lines + ([rest] if last and rest else []):
                    self._console.say(f"[{label(training)}] {line}")

        thread = threading.Thread(target=follow, daemon=True)
        if not self._console.dry_run:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            if thread.is_alive():
                thread.join()


def _reason(said: str) -> str:
    """The last error of the task that failed first; where none spoke of any, what SLURM itself says.

    That is such as that the time is over. The tasks that srun ends thereafter have errors of their own.
    """
    lines = re.sub(r"(?m)^ *\d+: ", "", said)
    first = re.search(r"(?m)^srun: error: .*\btasks? (\d+).*: Exited", said)
    of_first = "\n".join(re.findall(rf"(?m)^ *{first[1]}: (.*)", said)) if first else ""
    of_tasks = re.sub(r"(?m)^(srun|slurmstepd): .*", "", lines)
    for part in (of_first, of_tasks, lines.replace("srun: ", "")):
        if error_lines(part):
            return error_line(part)
    return error_line(lines)


def _after(log: Path, place: int) -> str:
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(place)
        return file.read().decode(errors="surrogateescape")
