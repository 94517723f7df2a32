"""Jobs of a cluster run by SLURM, most often with GPUs; code, environment and workdir lie on a shared disk."""

import argparse
import sys
from pathlib import Path

from scripts.arguments import FLAG, at_least
from scripts.launch.code import ROOT
from scripts.launch.process import Console
from scripts.launch.scheduler import Platform
from scripts.launch.training import Training

_SCRIPT = Path(__file__).with_name("slurm.sh")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this platform."""
    parser.add_argument("--nodes", type=at_least(1), default=1)
    gpus_help = "one process for each; 0: one process a node"
    parser.add_argument("--gpus_per_node", type=at_least(0), default=0, help=gpus_help)
    flag_help = "for sbatch, for example --time=12:00:00; repeatable"
    parser.add_argument("--sbatch_flag", type=FLAG, action="append", default=[], metavar="FLAG", help=flag_help)


class Slurm(Platform):
    """Trains in a job per run."""

    submits = True

    def __init__(self, options: argparse.Namespace, console: Console):
        super().__init__(options, console)
        self.num_devices = options.nodes * options.gpus_per_node or None
        self.num_processes = options.nodes * (options.gpus_per_node or 1)

    def train(self, training: Training, slot: int) -> None:
        """Submits a job and waits for its end."""
        self._console.run({"job": self.command(training)}, training.logs)

    def command(self, training: Training) -> list[str]:
        """The command that submits a run, and ends when its job ends."""
        options, log = self._options, str(training.logs.absolute() / "job.log")
        return [
            "sbatch",
            "--wait",
            f"--job-name=sparse-topk-{training.digest}",
            # A job that an earlier launcher has left ends first; then this one finds the run done, or goes on with it.
            "--dependency=singleton",
            "--requeue",
            "--open-mode=append",
            f"--output={log.replace('%', '%%')}",
            f"--chdir={ROOT}",
            # Time to save before the time is over.
            "--signal=TERM@120",
            f"--nodes={options.nodes}",
            f"--ntasks-per-node={options.gpus_per_node or 1}",
            *([f"--gpus-per-node={options.gpus_per_node}"] if options.gpus_per_node else []),
            *options.sbatch_flag,
            str(_SCRIPT),
            *training.command(sys.executable),
        ]
