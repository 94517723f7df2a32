"""Trains all runs of a preset and makes their table and figures.

    python -m experiments.mnist_pruning.suite --out=DIR [--preset=full|quick|demo] [--only=REGEX]

The same command goes on where an earlier one stopped; finished runs are left alone. SIGTERM stops
it with exit status 0; a run that fails is reported, does not keep the others from running, and
makes the exit status 1.
"""

import argparse
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from absl import logging

from experiments.core.errors import UsageError
from experiments.mnist_pruning.suite import runner
from experiments.mnist_pruning.suite.plan import Run
from experiments.mnist_pruning.suite.presets import PRESETS
from scripts import figures, table


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.mnist_pruning.suite", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--out", type=Path, required=True, help="directory of the workdirs, table and figures")
    parser.add_argument("--preset", choices=PRESETS, default="full")
    parser.add_argument("--only", default="", metavar="REGEX", help="only the runs in whose name this is found")
    options = parser.parse_args(arguments)
    runs = PRESETS[options.preset]()
    try:
        selected = [run for run in runs if re.search(options.only, run.name)]
    except re.error as error:
        parser.error(f"--only={options.only!r} is not a regular expression: {error}")
    if not selected:
        parser.error(f"--only={options.only!r} matches none of the {len(runs)} runs, such as {runs[0].name}")
    logging.set_verbosity(logging.ERROR)  # of orbax, which has much to report
    command = ["python", "-m", "experiments.mnist_pruning.suite", *arguments]
    try:
        return run_suite(options.out, runs, selected, command)
    except runner.Stopped:
        print("\nstopped; the same command goes on from here")
        return 0
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def run_suite(out: Path, runs: Sequence[Run], selected: Sequence[Run], command: Sequence[str]) -> int:
    """Trains `selected`, a part of `runs`, and makes table and figures; returns the exit status."""
    start = time.monotonic()
    try:
        failed = runner.train_all(out, runs, selected, command)
    finally:
        if out.is_dir():
            runner.write_choices(out, runs)
    print()
    written = table.make(out) + figures.make(out)
    print(f"{len(selected) - len(failed)} of {len(selected)} runs done in {runner.duration(time.monotonic() - start)}")
    print(f"results are in {out}: " + ", ".join(str(path.relative_to(out)) for path in written))
    if failed:
        print(f"error: {len(failed)} failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
