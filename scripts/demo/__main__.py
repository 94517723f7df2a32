"""Trains small versions of the experiments on bundled data: `python -m scripts.demo [--out=DIR]`.

It prints a summary, writes pictures, tables and curves to DIR/index.html and all output of the runs to DIR/log.txt. Run
again, it resumes.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event

from experiments.core import console
from experiments.core.errors import UsageError, in_one_line, printable
from experiments.core.report.results import Run
from scripts.compare.workdirs import Found, find
from scripts.demo import page, summary
from scripts.demo.parts import CLUSTERS, PARTS, Part
from scripts.demo.training import train

_LAST = 10  # lines of the log to show if something failed


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.demo", description=(__doc__ or "").split(":")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="where to write (default: %(default)s)")
    parser.add_argument("--all", action="store_true", help="every method, loss and router, and the task of clusters")
    options = parser.parse_args(arguments)
    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # which nohup sets
            # An exception could come between the start of a suite and the line that stops it.
            signal.signal(number, lambda *_: stop.set())
    try:
        return in_one_line(lambda: _demo(options.out, options.all, stop))
    except KeyboardInterrupt:
        print("stopped; run it again and it resumes", flush=True)
        return 0


def _demo(out: Path, everything: bool, stop: Event) -> int:
    out.mkdir(parents=True, exist_ok=True)
    log = out / "log.txt"
    parts = [*PARTS, CLUSTERS] if everything else [*PARTS]
    if status := train(parts, everything, out, log, stop):
        lines = [printable(line) for line in log.read_text(errors="replace").splitlines()]
        failed = [line for line in lines[:-_LAST] if "FAILED" in line]
        print(*failed, *lines[-_LAST:], f"error: the demo failed; all that was said: {log}", sep="\n", file=sys.stderr)
        return status
    found = find([str(out)])
    runs = {part: _labelled(part, found) for part in PARTS}
    verdicts = {part: summary.verdict(part, its) for part, its in runs.items()}
    conclusion = [summary.conclusion(part, its) for part, its in runs.items()]
    written = page.make(parts, conclusion, verdicts, found, out)
    print(*summary.summary(runs, written), sep="\n")
    return 0


def _labelled(part: Part, found: Found) -> dict[str, Run]:
    """Returns the runs of the summary, by their names in the part."""
    names = {f"{part.experiment}/{name}": name for name in part.labels}
    for problem in found.problems:
        if problem.name in names:
            raise UsageError(f"{problem.name}: {problem.reason}")
    return {names[run.name]: run for run in found.runs if run.name in names}


if __name__ == "__main__":
    console.run(main)
