"""What the commands that read a directory of results have in common."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.core.errors import in_one_line
from experiments.core.report.results import Problem, Run


def on_directory(module: str, doc: str | None, work: Callable[[Path], int], arguments: Sequence[str]) -> int:
    """Runs `work` on the one argument of a command; returns its exit status, or 2 if that is no directory or damaged.

    Args:
      module: the command is `python -m module`.
      doc: its docstring, which begins with what it does and a colon.
      work: takes the directory and returns the exit status.
      arguments: of the command line.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=(doc or "").split(":")[0])
    parser.add_argument("directory", type=Path, help="a directory with workdirs at any depth")
    directory = parser.parse_args(arguments).directory
    if not directory.is_dir():
        print(f"error: {directory} is not a directory", file=sys.stderr)
        return 2
    return in_one_line(lambda: work(directory))


def drawable(found: tuple[list[Run], list[Problem]]) -> list[Run]:
    """The runs among those found; says on the standard error which are left out of the figures."""
    runs, problems = found
    for problem in problems:
        print(f"left out of the figures: {problem.name}: {problem.reason}", file=sys.stderr)
    return runs


def figures_of(module: str, doc: str | None, make: Callable[[Path], list[Path]], arguments: Sequence[str]) -> int:
    """The command `python -m module DIR` that draws figures; returns its exit status, 1 if nothing was drawn."""

    def work(directory: Path) -> int:
        written = make(directory)
        for path in written:
            print(path)
        if not written:
            print(f"error: no finished runs below {directory}", file=sys.stderr)
        return 0 if written else 1

    return on_directory(module, doc, work, arguments)
