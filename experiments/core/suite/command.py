"""The command of a suite: `python -m <package> --out=DIR [--preset=NAME] [--only=REGEX] [--jobs=N]`."""

import argparse
import contextlib
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
from absl import logging

from experiments.core.console import clock
from experiments.core.errors import UsageError, in_one_line, printable
from experiments.core.record import hardware
from experiments.core.record.environment import processors
from experiments.core.record.files import is_remote, read_object
from experiments.core.suite import runner, worker
from experiments.core.suite.choice import Choice, check_given
from experiments.core.suite.plan import Suite, SuiteRun
from experiments.core.training import train

MOST = 8  # runs at once if not told otherwise: each takes a GB or two

_HELP = """Trains all runs of a preset and makes their table and figures.

    python -m {package} --out=DIR [--preset={presets}] [--only=REGEX] [--jobs=N] [--choices=FILE]

Run it again and it resumes; finished runs are left alone. SIGTERM stops it with exit status 0;
a run that fails does not keep the others from running, and makes the exit status 1.
"""


def main(suite: Suite, arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    description = _HELP.format(package=suite.package, presets="|".join(suite.presets))
    parser = argparse.ArgumentParser(prog=f"python -m {suite.package}", description=description)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--out", required=True, help="directory of the workdirs, table and figures")
    parser.add_argument("--preset", choices=suite.presets, default=next(iter(suite.presets)))
    parser.add_argument("--only", default="", metavar="REGEX", help="only the runs in whose name this is found")
    many = f"runs at once, each on its share of the processors (a processor each, up to {MOST}; 1 on an accelerator)"
    parser.add_argument("--jobs", type=int, metavar="N", help=many)
    file = "choices.json of other runs, such as the committed ones: what is chosen there is not chosen anew"
    parser.add_argument("--choices", type=Path, metavar="FILE", help=file)
    options = parser.parse_args(arguments)
    if is_remote(options.out):
        parser.error(f"--out={options.out}: a suite keeps its runs on a local disk; scripts.launch trains in buckets")
    runs = suite.presets[options.preset]()
    try:
        selected = [run for run in runs if re.search(options.only, run.name)]
    except re.error as error:
        parser.error(f"--only={options.only!r} is not a regular expression: {error}")
    if not selected:
        parser.error(f"--only={options.only!r} matches none of the {len(runs)} runs, such as {runs[0].name}")
    if options.choices and not options.choices.is_file():
        parser.error(f"--choices={options.choices} is no file: it must be one that a suite has written")
    most = len(processors())
    if options.jobs is not None and not 1 <= options.jobs <= most:
        parser.error(f"--jobs={options.jobs} is not allowed: it must be in [1, {most}], the processors there are")
    logging.set_verbosity(logging.ERROR)  # of orbax, which has much to report
    out, command = Path(options.out).expanduser(), ["python", "-m", suite.package, *arguments]
    try:
        choices = read_object(options.choices, "name one that a suite has written") if options.choices else None
        return in_one_line(lambda: run_suite(suite, out, runs, selected, command, options.jobs, choices))
    except worker.Stopped:
        with contextlib.suppress(OSError):  # of a terminal that is closed
            print("\nstopped; run it again and it resumes", flush=True)
        return 0


def run_suite(
    suite: Suite,
    out: Path,
    runs: Sequence[SuiteRun],
    selected: Sequence[SuiteRun],
    command: Sequence[str],
    jobs: int | None = 1,
    given: Mapping[str, Choice] | None = None,
) -> int:
    """Trains `selected`, a part of `runs`, and makes table and figures; returns the exit status.

    `jobs` runs train at once; None: as many as is best on this machine. Choices that are `given` are not made anew.

    Raises `UsageError` if a run is not one that can be trained here, or data are missing, and `Stopped` as `Runner`.
    """
    start = time.monotonic()
    hardware.require_devices()
    if (platform := jax.default_backend()) == "cpu":
        # A processor is better off with a run of its own than with a share of one.
        jobs = jobs or min(MOST, len(processors()))
    elif jobs not in (None, 1):
        raise UsageError(f"--jobs={jobs} is not allowed: it must be 1 on a {platform}, which a run has to itself")
    check_given(suite, out, runs, given or {})
    # A mistake is said once and at the start. A choice to come puts other numbers into fields that are valid already.
    for run in selected:
        config = suite.config(run, out)
        train.check_fields(suite.recipe, config)
        train.prepare(suite.recipe, config)
    try:
        with worker.stoppable():
            failed = runner.Runner(suite, out, runs, selected, command, given).train(min(jobs or 1, len(selected)))
    finally:
        if out.is_dir():
            runner.write_choices(suite, out, runs, given)
    print()
    written = suite.report(out) if out.is_dir() else []
    print(f"{len(selected) - len(failed)} of {len(selected)} runs done in {clock(time.monotonic() - start)}")
    print(printable(f"results are in {out}: " + ", ".join(str(path.relative_to(out)) for path in written)))
    if failed:
        print(f"error: {len(failed)} failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0
