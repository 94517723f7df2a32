"""Breaks runs in every way known here, and fails if one ends with other numbers: `python -m scripts.chaos`.

First a run that nothing happens to; then runs that are killed with -9 at random moments, so many times in all, and
go on; then one that each of SIGTERM, SIGINT and SIGHUP stops; then one for each kind of damage to the files of a run
that was killed half way: it must go on and end with the same numbers, or refuse in one line, without changing anything.
All are small runs of the pruning experiment by its command line. What came of each, on which machine and at which
commit, is kept in DIR/report.json. The exit status is 1 if anything was otherwise.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.core import console
from experiments.core.pace import pace
from experiments.core.record.files import read_object, write_json
from experiments.core.record.workdir import Workdir
from scripts.chaos import damages, kills
from scripts.chaos.command import STOPS, Row, TrainingCommand, ended, numbers, wait_for_rows, wrong

ROOT = Path(__file__).resolve().parents[2]


class Progress:
    """Says after each case what came of it, and how long the rest will take."""

    def __init__(self, total: int):
        self.total, self.done, self.start = total, 0, time.monotonic()
        self.results: list[tuple[str, str]] = []

    def add(self, name: str, reason: str, said: str = "as it should be") -> None:
        """Notes a case, and what was wrong in it, if anything."""
        self.note(name, reason)
        self.done += 1
        left = pace(self.done, self.total, time.monotonic() - self.start)
        number = f"[{self.done:{len(str(self.total))}}/{self.total}]"
        print(f"{number} {name}: {reason or said}  {left}", flush=True)

    def note(self, name: str, reason: str) -> None:
        """Notes what comes besides the cases that are counted."""
        self.results.append((name, reason))


def pruning(options: argparse.Namespace, cache: Path) -> TrainingCommand:
    """A small run of the pruning experiment, whose compiled code is kept in `cache`."""

    def command(workdir: Path) -> list[str]:
        return [
            *(sys.executable, "-m", "experiments.mnist_pruning", "--config=configs/mnist_pruning.py:dense"),
            *(f"--workdir={workdir}", f"--config.dataset={options.dataset}", "--config.seeds=(0, 1)"),
            *(f"--config.epochs={options.epochs}", "--config.checkpoint_every=2", "--noconfig.download"),
        ]

    compiled = {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    return TrainingCommand(command, os.environ | compiled, ROOT)


def make(run: TrainingCommand, out: Path, num_kills: int, seed: int, chosen: Sequence[damages.Damage]) -> int:
    """Does everything below `out`, which is to be empty, and writes `report.json` there; returns the exit status."""
    rng = random.Random(seed)
    begin = time.monotonic()
    print(f"seed {seed}: {num_kills} kills, {len(STOPS)} signals, {len(chosen)} kinds of damage, in {out}", flush=True)
    run.finish(out / "compiled")  # it takes longer than all others
    start = time.monotonic()
    end = run.finish(out / "whole")
    seconds = time.monotonic() - start
    expected = numbers(out / "whole")
    if reason := wrong(out / "whole", end, expected):
        print(f"error: the run that nothing happens to does not end: {reason}", file=sys.stderr)
        return 1
    print(f"a run that nothing happens to has {len(expected)} rows and takes {seconds:.1f} s", flush=True)

    progress = Progress(num_kills + len(STOPS) + len(chosen))
    for moment, reason in kills.kill(run, out, num_kills, rng, expected, seconds):
        if moment:
            progress.add(f"killed {moment}", "", said="goes on")
            continue
        progress.note("killed, and done at last", reason)
        print(f"the run is done: {reason or 'the same rows'}", flush=True)
    for number in STOPS:
        progress.add(number.name, _stopped(run, out / number.name, number, expected))
    if chosen:
        _half(run, out / "half", len(expected))
    for place, damage in enumerate(chosen, start=1):
        workdir = out / f"damaged-{place}"
        reason = damages.suffer(run, out / "half", workdir, damage, rng, expected)
        progress.add(damage.name, f"{workdir}: {reason}" if reason else "")
        if not reason:
            shutil.rmtree(workdir)
    settings = {
        "command": run.command(Path("WORKDIR"))[1:],  # less the interpreter, which is at another place elsewhere
        "kills": num_kills,
        "seed": seed,
        "rows": len(expected),
        "seconds_of_a_run": round(seconds, 1),
    }
    return _report(progress.results, settings, round(time.monotonic() - begin), out)


def _report(results: Sequence[tuple[str, str]], settings: dict[str, Any], seconds: int, out: Path) -> int:
    """Writes and prints what came of everything; returns the exit status."""
    environment, cases, path = _environment(out / "whole"), _cases(results), out / "report.json"
    write_json(path, {"environment": environment, "settings": settings, "seconds": seconds, "cases": cases})
    print("\n".join(_table(cases)))
    seed = f"with seed {settings['seed']}"
    if failed := sum(bool(reason) for _, reason in results):
        print(f"error: {failed} of {len(results)} otherwise than it should be, {seed}: see {out}", file=sys.stderr)
        return 1
    print(f"all {len(results)} as it should be, {seed}: {path}")
    return 0


def _environment(workdir: Path) -> dict[str, Any] | None:
    """Commit, versions and hardware, as a run has recorded them, less what is of that run alone."""
    path = Workdir(workdir).environment
    own = ("started", "command", "overrides", "resumed")
    return {k: v for k, v in read_object(path, "").items() if k not in own} if path.exists() else None


def _stopped(run: TrainingCommand, workdir: Path, number: signal.Signals, expected: list[Row]) -> str:
    """What is wrong with a run that a signal stops and that goes on then."""
    process = run.start(workdir)
    wait_for_rows(process, workdir, len(expected) // 3)
    process.send_signal(number)
    end = ended(process)
    if end.status or f"stopped by {number.name}" not in end.out:
        return f"exit status {end.status}: {end.err.strip()[-200:] or end.out.strip()[-200:]}"
    return wrong(workdir, run.finish(workdir), expected)


def _half(run: TrainingCommand, workdir: Path, rows: int) -> None:
    """A run that was killed when it had more than half of its rows."""
    process = run.start(workdir)
    wait_for_rows(process, workdir, rows * 2 // 3)
    process.kill()
    process.communicate()


def _cases(results: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """By what happened: how often it did, and what was otherwise than it should be."""
    return [
        {
            "happened": name,
            "times": number,
            "otherwise": [reason for other, reason in results if other == name and reason],
        }
        for name, number in Counter(name for name, _ in results).items()
    ]


def _table(cases: Sequence[dict[str, Any]]) -> Iterator[str]:
    width = max(len(case["happened"]) for case in cases)
    yield f"\n{'what happened':{width}}  times  otherwise than it should be"
    for case in cases:
        reasons = case["otherwise"]
        told = f"{len(reasons)}: {reasons[0]}" if reasons else "-"
        yield f"{case['happened']:{width}}  {case['times']:5}  {told}"


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50, metavar="N", help="in all (50)")
    parser.add_argument("--seed", type=int, default=0, help="of the random moments and places (0)")
    parser.add_argument("--epochs", type=int, default=60, help="of every run (60)")
    parser.add_argument("--dataset", default="digits", help="digits, which need no download, or mnist in TFDS_DATA_DIR")
    parser.add_argument("--only", default="", metavar="TEXT", help="only damages with this in their name")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/chaos"), help="what an earlier call left there is removed (runs/chaos)"
    )
    options = parser.parse_args(arguments)
    if options.kills < 0 or options.epochs < 12:
        parser.error("--kills must be at least 0, and --epochs at least 12")
    chosen = [damage for damage in damages.DAMAGES if options.only in damage.name]
    if not chosen:
        known = "; ".join(damage.name for damage in damages.DAMAGES)
        parser.error(f"--only={options.only} is not allowed: it must be part of one of {known}")
    out = options.out.absolute()
    mark = out / ".chaos"
    if out.exists() and any(out.iterdir()) and not mark.exists():
        parser.error(f"--out={options.out} holds what this command has not made, and would remove")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    mark.touch()
    return make(pruning(options, out / "compiled-code"), out, options.kills, options.seed, chosen)


if __name__ == "__main__":
    console.run(main)
