"""Archives the finished runs of a directory: `python -m scripts.archive DIR [--out=DIR] [--remove] [--restore]`.

The runs of each directory with workdirs become two files there, or at the same place below OUT: `runs.jsonl`, a line
for each run with its config, environment, summary and all rows, and `arrays.npz`, if runs have kept arrays. Only
checkpoints and TensorBoard's files are lost; tables, figures, comparisons and reports read archives as they read
workdirs. If a run is unfinished or damaged, nothing is written. --remove deletes workdirs once their archive has been
read back. --restore goes the other way: archived runs become workdirs below OUT, so that a suite there counts them as
done, such as the sweeps of a comparison that gets another method.
"""

import argparse
import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

from experiments.core import console
from experiments.core.errors import UsageError, in_one_line
from experiments.core.record.files import write_compressed, write_json
from experiments.core.record.metrics import Writer
from experiments.core.record.workdir import LOCK, Workdir
from experiments.core.report import archive, results
from experiments.core.report.results import Run


def make(directory: Path, out: Path) -> list[Path]:
    """Archives all runs below `directory` at the same places below `out`; returns the paths of the files.

    A directory that is a run itself is archived under its name, in another directory.

    Raises:
      UsageError: a run is unfinished or damaged, or there is none, or an archive of other runs is in the way; nothing
        has been written.
    """
    runs, problems = results.load(directory)
    if problems:
        raise UsageError(
            f"{directory}: nothing is archived while {len(problems)} runs below it are unfinished or damaged, such as "
            f"{problems[0].name} ({problems[0].reason})"
        )
    if not runs:
        raise UsageError(f"{directory} holds no runs")
    if any(run.name == "." for run in runs):
        if out.resolve() == directory.resolve():
            raise UsageError(f"{directory} is a run itself: --out must be another directory")
        runs = [dataclasses.replace(run, name=directory.resolve().name) if run.name == "." else run for run in runs]
    groups: dict[Path, list[Run]] = {}
    for run in runs:
        groups.setdefault(Path(run.name).parent, []).append(run)
    for group, members in groups.items():
        kept = {record["name"] for record, _ in archive.read(out / group)} - {Path(run.name).name for run in members}
        if kept:
            raise UsageError(
                f"{out / group / archive.RUNS} has other runs, such as {min(kept)}, which are not below {directory}: "
                "archive in another directory, or these runs together with those"
            )
    written = []
    for group, members in groups.items():
        written += archive.write(out / group, map(_record, members))
        print(f"{len(members)} runs: {written[-1].parent / archive.RUNS}", flush=True)
    _require_same(runs, out)
    return written


def restore(directory: Path, out: Path) -> list[Path]:
    """Writes all archived runs below `directory` as workdirs below `out`; returns those that were not there yet."""
    runs, problems = results.load(directory)
    if problems:
        raise UsageError(f"{directory}: {problems[0].name} cannot be read: {problems[0].reason}")
    made = []
    for run in runs:
        workdir = Workdir(out / run.name)
        if workdir.config.exists():
            continue
        workdir.path.mkdir(parents=True, exist_ok=True)
        summary = dict(run.summary)
        if run.examples:
            summary["examples_sha256"] = write_compressed(workdir.examples, run.examples)
        if params := run.params():
            write_compressed(workdir.params, params)
        if run.environment:
            write_json(workdir.environment, run.environment)
        Writer(workdir.metrics, list(run.rows)).close()
        write_json(workdir.summary, summary)
        write_json(workdir.config, run.config)  # last: without it the run is written again
        made.append(workdir.path)
    return made


def _record(run: Run) -> tuple[archive.Record, archive.Arrays]:
    record = {
        "name": Path(run.name).name,
        "config": run.config,
        "environment": run.environment,
        "summary": run.summary,
        "rows": run.rows,
    }
    kept = {"examples": run.examples, "params": run.params()}
    return record, {file: arrays for file, arrays in kept.items() if arrays}


def _require_same(runs: Sequence[Run], out: Path) -> None:
    """Checks that each run reads back as it was written."""
    names = {run.name for run in runs}
    again = {run.name: run for run in results.load(out)[0] if run.name in names}
    for run in runs:
        other = again.get(run.name)
        if other is None or not _same(run, other):
            raise UsageError(f"{out}: {run.name} does not read back from its archive as it was; its workdir is kept")


def _same(run: Run, other: Run) -> bool:
    (record, arrays), (again, kept) = _record(run), _record(other)
    return record == again and all(
        arrays[file].keys() == kept.get(file, {}).keys()
        and all(array.tobytes() == kept[file][name].tobytes() for name, array in of_file.items())
        for file, of_file in arrays.items()
    )


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.archive", description=(__doc__ or "").split(":")[0])
    parser.add_argument("directory", type=Path, help="a workdir, or a directory with some at any depth")
    parser.add_argument("--out", type=Path, help="where to write (default: the directory itself)")
    parser.add_argument("--remove", action="store_true", help="remove the workdirs that are archived")
    parser.add_argument("--restore", action="store_true", help="make workdirs of archives, below OUT")
    options = parser.parse_args(arguments)
    if options.restore and (options.remove or not options.out):
        parser.error("--restore needs --out, the directory of the workdirs, and removes nothing")

    def work() -> int:
        if not options.directory.is_dir():
            raise UsageError(f"{options.directory} is not a directory")
        out = options.out or options.directory
        if options.restore:
            print(f"{len(restore(options.directory, out))} runs restored: {out}")
            return 0
        workdirs = sorted(path.parent for path in options.directory.rglob("summary.json")) if options.remove else []
        written = make(options.directory, out)
        for path in workdirs:
            _remove(path)
        print(f"{len(written)} files, {sum(path.stat().st_size for path in written) / 1e6:.1f} MB: {out}")
        return 0

    return in_one_line(work)


def _remove(path: Path) -> None:
    """Removes the files of a run, and its workdir if no other files are left in it."""
    workdir = Workdir(path)
    for entry in vars(workdir).values():
        if entry in (workdir.checkpoints, workdir.tensorboard):
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.is_file():
            entry.unlink()
    if not {entry.name for entry in workdir.path.iterdir()} - {LOCK}:
        shutil.rmtree(workdir.path)


if __name__ == "__main__":
    console.run(main)
