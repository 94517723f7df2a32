"""The command line of the launcher.

    python -m scripts.launch PLATFORM EXPERIMENT --workdir=DIR [options] [-- --config.FIELD=VALUE ...]

Run it again and it resumes: what is done stays. The exit status is
the worst of the runs that failed; 2 where the user has something to correct; 0 when it was stopped, as by Ctrl-C.
"""

import argparse
import re
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from experiments.core.errors import UsageError, in_one_line
from experiments.core.record.files import absolute, is_remote
from scripts.arguments import at_least
from scripts.launch import gke, local, slurm, state, tpu
from scripts.launch.check import validate
from scripts.launch.code import ROOT
from scripts.launch.process import Console, Failed, Stopped
from scripts.launch.scheduler import Platform, Scheduler, label
from scripts.launch.sweep import points
from scripts.launch.training import Training, check_overrides

_Make = Callable[[argparse.Namespace, Console], Platform]

_PLATFORMS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None], _Make]] = {
    "local": ("processes on this machine", local.add_options, local.Local),
    "slurm": ("jobs of a cluster, by sbatch", slurm.add_options, slurm.Slurm),
    "tpu-vm": ("a TPU of Google Cloud, at once", tpu.add_options, lambda o, c: tpu.Tpu(o, c, queued=False)),
    "queued-resource": ("a TPU when its turn comes", tpu.add_options, lambda o, c: tpu.Tpu(o, c, queued=True)),
    "gke": ("TPUs of a Kubernetes cluster, by xpk", gke.add_options, gke.Gke),
}
_FAR = ("tpu-vm", "queued-resource", "gke")  # see neither the disk nor the directories of this machine


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    options = _parse(arguments)
    console = Console(dry_run=options.dry_run)

    def run() -> int:
        trainings = _trainings(options)
        if options.status:
            _show(console, trainings)
            return 0
        return _launch(options, console, trainings)

    try:
        return in_one_line(run)
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status


def _launch(options: argparse.Namespace, console: Console, trainings: Sequence[Training]) -> int:
    if not options.no_check:
        validate(trainings)
    platform = _PLATFORMS[options.platform][2](options, console)
    retries = platform.retries if options.retries is None else options.retries
    scheduler = Scheduler(
        platform,
        trainings,
        console,
        retries,
        options.pause_seconds,
        checked=not options.no_check,
        take_over=options.take_over,
        compile_for=_compile_for(options),
    )

    def stop(number: int, frame: FrameType | None) -> None:
        console.stop()
        console.say(f"{signal.Signals(number).name}: stopping; once more to stop at once")

    # What is ignored, as SIGHUP by nohup, stays so.
    signals = [
        number
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        if signal.getsignal(number) != signal.SIG_IGN
    ]
    previous = {number: signal.signal(number, stop) for number in signals}
    try:
        status = scheduler.go(options.jobs)
    except Stopped:
        if scheduler.going_on:
            goes_on = f"; submitted, and going on without the launcher: {', '.join(sorted(scheduler.going_on))}"
        else:
            goes_on = "; nothing is submitted or queued any more" if platform.leaves_running else ""
        console.say(f"stopped{goes_on}; run it again and it resumes")
        status = 0
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if not options.dry_run:
        _show(console, trainings)
        console.say(f"results are in {options.workdir}")
    return status


def _compile_for(options: argparse.Namespace) -> str | None:
    """The type to compile for first, if that is asked for."""
    if not options.compile_first:
        return None
    if options.platform not in _FAR:
        raise UsageError(f"--compile_first is for {', '.join(_FAR)}: {options.platform} names no TPU to compile for")
    slices = getattr(options, "slices", 1)
    return f"{slices}x{options.type}" if slices > 1 else options.type


def _show(console: Console, trainings: Sequence[Training]) -> None:
    for line in state.table({label(training): state.read(training) for training in trainings}):
        console.say(line)


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
    options.override += arguments[end + 1 :]
    return options


def _add_common_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", help="a package under experiments/, such as mnist_pruning")
    parser.add_argument(
        "--config", help="a Python file, which is run, here, too; configs/EXPERIMENT.py[:VARIANT] if left out"
    )
    parser.add_argument("--workdir", required=True, help="of the run, or of all those of a sweep; may begin with gs://")
    parser.add_argument(
        "--override", action="append", default=[], metavar="FLAG", help="one of --config.FIELD=VALUE; repeatable"
    )
    parser.add_argument("--overrides", default="", help="several of them in one string, quoted as for a shell")
    parser.add_argument(
        "--sweep",
        action="append",
        default=[],
        metavar="FIELD=V,V",
        help="config.lam.start=1e-4,1e-3 or config.seeds=range(5); repeatable",
    )
    parser.add_argument("--jobs", type=at_least(1), default=1, metavar="J", help="runs at a time (1)")
    parser.add_argument("--retries", type=at_least(0), help="attempts in a row without progress, besides the first")
    parser.add_argument(
        "--pause_seconds", type=float, default=30.0, help="before the second attempt, doubled each time (30)"
    )
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="for the training command; repeatable"
    )
    parser.add_argument(
        "--no_check",
        action="store_true",
        help="launch without asking the experiment, here, whether it can run the configs",
    )
    parser.add_argument(
        "--compile_first",
        action="store_true",
        help="compile the step of each run for the type of TPU, here, before one is asked for: what does not fit is "
        "refused (needs make install VENV=.venv-tpu JAX=tpu)",
    )
    parser.add_argument(
        "--take_over",
        action="store_true",
        help="go on with runs of a launcher that is gone, though it may seem to live",
    )
    parser.add_argument("--dry_run", action="store_true", help="print the commands instead of running them")
    parser.add_argument("--status", action="store_true", help="show how far the runs are, and do nothing")


def _trainings(options: argparse.Namespace) -> list[Training]:
    """The runs that are asked for.

    Raises:
      UsageError: they are none that could be trained.
    """
    options.config = options.config or f"configs/{options.experiment}.py"
    if not re.fullmatch(r"\w+", options.experiment) or not (ROOT / "experiments" / options.experiment).is_dir():
        raise UsageError(f"{options.experiment!r} is not an experiment: there is no experiments/{options.experiment}")
    if not (ROOT / options.config.partition(":")[0]).is_file():
        raise UsageError(f"--config={options.config}: there is no such file")
    for variable in options.env:
        if not re.fullmatch(r"[A-Za-z_]\w*=.*", variable, re.DOTALL):
            raise UsageError(f"--env={variable!r} is not of the form NAME=VALUE")
    if options.platform in _FAR:
        if not is_remote(options.workdir):
            raise UsageError(f"--workdir={options.workdir}: {options.platform} needs one in a bucket, gs://BUCKET/...")
        if Path(options.config).is_absolute():
            raise UsageError(f"--config={options.config} must be relative to the repository, which is what is sent out")
    try:
        overrides = check_overrides([*shlex.split(options.overrides), *options.override])
    except ValueError as error:
        raise UsageError(f"--overrides={options.overrides!r}: {error}") from error
    # Once and for all, wherever the run goes on.
    workdir = options.workdir = str(absolute(options.workdir)).rstrip("/")
    return [
        Training(
            name=name,
            experiment=options.experiment,
            config=options.config,
            workdir=f"{workdir}/{name}" if name else workdir,
            overrides=(*overrides, *point),
            environment=tuple(options.env),
        )
        for name, point in points(options.sweep)
    ]
