"""The command line of the launcher.

    python -m scripts.launch PLATFORM EXPERIMENT --workdir=DIR [options] [-- --config.FIELD=VALUE ...]

Run it again and it resumes: what is done stays. The exit status is
the worst of the runs that failed; 2 where the user has something to correct; 0 when it was stopped, as by Ctrl-C.
"""

import argparse
import os
import re
import shlex
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from experiments.core.errors import UsageError, in_one_line
from experiments.core.record.files import absolute, is_remote, reaching
from scripts.arguments import at_least
from scripts.launch import code, local, slurm, state, tpu
from scripts.launch.check import check, compile_first
from scripts.launch.code import ROOT
from scripts.launch.process import Console, Failed, Stopped
from scripts.launch.sweep import points
from scripts.launch.training import Training

_PLATFORMS = {
    "local": ("processes on this machine", local.add_options, local.Local),
    "slurm": ("jobs of a cluster, by sbatch", slurm.add_options, slurm.Slurm),
    "tpu-vm": ("a TPU of Google Cloud, at once or not at all", tpu.add_options, tpu.TpuVm),
    "queued-resource": ("a TPU of Google Cloud when its turn comes", tpu.add_options, tpu.Tpu),
}


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    options = _parse(arguments)
    console = Console(dry_run=options.dry_run)

    def run() -> int:
        trainings = _trainings(options)
        status = 0 if options.status else _launch(options, console, trainings)
        if not options.dry_run:
            for line in state.table({training.label: _state(training) for training in trainings}):
                console.say(line)
        return status

    try:
        return in_one_line(run)
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status


def _launch(options: argparse.Namespace, console: Console, trainings: Sequence[Training]) -> int:
    platform = _PLATFORMS[options.platform][2](options, console)
    if options.compile_first and not platform.type:
        raise UsageError(f"--compile_first is for TPUs: {options.platform} names none to compile for")
    if not options.no_check:
        check(trainings, platform, console)
    left = []
    for training in trainings:
        if not options.dry_run and _state(training).word == state.DONE:
            console.say(f"{training.label}: was done")
        elif not options.dry_run and not platform.submits and (holder := state.holder(training)):
            where = f"{training.workdir}/{state.LAUNCH}"
            raise UsageError(f"{holder} trains {training.workdir}: if that launcher is gone, remove {where}")
        else:
            left.append(training)
    if options.compile_first:
        compile_first(left, platform.type, console)

    def stop(number: int, frame: FrameType | None) -> None:
        if console.stopping.is_set():  # what was asked to save does, unless it hangs
            os._exit(128 + number)
        what = "runs save and end, or go on if they are submitted; once more to leave them to it"
        console.say(f"{signal.Signals(number).name}: stopping: {what}")
        console.stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as SIGHUP is under nohup
            signal.signal(number, stop)
    try:
        return platform.go(left)
    except Stopped:
        console.say("stopped; run it again and it resumes")
        return 0


def _state(training: Training) -> state.State:
    """The state of a run; `UsageError` if its bucket cannot be reached."""
    with reaching(absolute(training.workdir)):
        return state.read(training)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.launch", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    subparsers = parser.add_subparsers(dest="platform", required=True, metavar="PLATFORM")
    for name, (doc, add_options, _) in _PLATFORMS.items():
        subparser = subparsers.add_parser(name, help=doc, description=doc, allow_abbrev=False)
        _add_common_options(subparser)
        add_options(subparser)
    arguments = list(arguments)
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:end])
    options.after = arguments[end + 1 :]
    return options


def _add_common_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("experiment", help="a package under experiments/, such as mnist_pruning")
    add("--config", help="a Python file, which is run, here, too; configs/EXPERIMENT.py[:VARIANT] if left out")
    add("--workdir", required=True, help="of the run, or of all those of a sweep; may begin with gs://")
    add("--overrides", default="", help="--config.FIELD=VALUE ... in one string, quoted as for a shell")
    sweep_help = "config.lam.start=1e-4,1e-3 or config.epochs=range(10,40,10); repeatable"
    add("--sweep", action="append", default=[], metavar="FIELD=V,V", help=sweep_help)
    add("--jobs", type=at_least(1), default=1, metavar="J", help="runs at a time (1)")
    add("--retries", type=at_least(0), help="attempts in a row without progress, besides the first")
    add("--pause_seconds", type=float, default=30.0, help="before the second attempt, doubled each time (30)")
    env_help = "for the training command; repeatable"
    add("--env", action="append", default=[], metavar="NAME=VALUE", help=env_help)
    add("--no_check", action="store_true", help="launch without checking, here, that the configs can be trained there")
    compile_help = "refuse what TPU's compiler, which runs here, finds too large (make install VENV=.venv-tpu JAX=tpu)"
    add("--compile_first", action="store_true", help=compile_help)
    add("--dry_run", action="store_true", help="print the commands instead of running them")
    add("--status", action="store_true", help="show how far the runs are, and do nothing")


def _trainings(options: argparse.Namespace) -> list[Training]:
    """The runs that are asked for.

    Raises:
      UsageError: they are none that could be trained.
    """
    options.config = options.config or f"configs/{options.experiment}.py"
    if not re.fullmatch(r"\w+", options.experiment) or not (ROOT / "experiments" / options.experiment).is_dir():
        raise UsageError(f"{options.experiment!r} is not an experiment: there is no experiments/{options.experiment}")
    for variable in options.env:
        if not re.fullmatch(r"[A-Za-z_]\w*=.*", variable):
            raise UsageError(f"--env={variable!r} is not of the form NAME=VALUE, in one line")
    if _PLATFORMS[options.platform][2].far and not is_remote(options.workdir):
        raise UsageError(f"--workdir={options.workdir}: {options.platform} needs one in a bucket, gs://BUCKET/...")
    try:
        overrides = [*shlex.split(options.overrides), *options.after]
    except ValueError as error:
        raise UsageError(f"--overrides={options.overrides!r}: {error}") from error
    for override in overrides:
        if not (override.startswith("--config.") and override.isprintable()):
            raise UsageError(f"override {override!r} is not of the form --config.FIELD=VALUE, in one line")
    # Once and for all, wherever the run goes on.
    workdir = str(absolute(options.workdir)).rstrip("/")
    data = [f"TFDS_DATA_DIR={code.mounted(options.data)}"] if getattr(options, "data", None) else []
    environment, trainings = (*data, *options.env), []
    for name, point in points(options.sweep):
        directory, every = f"{workdir}/{name}" if name else workdir, (*overrides, *point)
        trainings.append(Training(name, options.experiment, options.config, directory, every, environment))
    return trainings
