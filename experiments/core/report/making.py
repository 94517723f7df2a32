"""The command that makes an experiment's report: `python -m experiments.NAME.report DIR`."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from experiments.core.errors import UsageError, in_one_line
from experiments.core.record.files import read_object, write_atomically
from experiments.core.report.presentation import Presentation
from experiments.core.report.style import STYLE, save

DOC = "Makes the table and the figures of finished runs."
Tables = Callable[[pd.DataFrame, frozenset[str]], list[str]]
Figures = Callable[[pd.DataFrame], Mapping[str, Figure]]


def make(presentation: Presentation, tables: Tables, figures: Figures, directory: Path) -> list[Path]:
    """Writes `table.md` and `figures/*.png` for the runs below a directory, and prints the tables.

    The same runs give the same bytes.

    Args:
      presentation: that of the experiment.
      tables: takes the runs, and the names of those that won a choice; returns the lines of all tables.
      figures: takes the runs; returns the figures by name, drawn under `STYLE`.
      directory: holds workdirs or archives at any depth, and `choices.json` if a suite made the runs.

    Returns:
      The paths of the files written.
    """
    runs, problems = presentation.load(directory)
    lines = tables(runs, chosen(directory)) if len(runs) else []
    if problems:
        lines += ["### Not in the tables", "", *(f"- `{problem.name}`: {problem.reason}" for problem in problems), ""]
    text = "\n".join(lines or ["No runs.", ""])
    print(text)
    write_atomically(directory / "table.md", text)
    written = [directory / "table.md"]
    with mpl.rc_context(STYLE):
        for name, figure in figures(runs).items() if len(runs) else ():
            written.append(save(figure, directory / "figures" / f"{name}.png"))
    print(f"{len(written)} files: {written[0]}, {directory / 'figures'}")
    return written


def on_directory(module: str, doc: str, work: Callable[[Path], Any], arguments: Sequence[str]) -> int:
    """Runs the command `python -m <module> DIR`; returns its exit status, 2 if DIR is no directory or damaged.

    Args:
      module: the module, as its help names it.
      doc: the description in its help.
      work: does the work, given the directory.
      arguments: those of the command line.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=doc)
    parser.add_argument(
        "directory", type=Path, help="a directory with runs at any depth; the files are written to it as well"
    )
    directory = parser.parse_args(arguments).directory

    def checked() -> int:
        if not directory.is_dir():
            raise UsageError(f"{directory} is not a directory")
        work(directory)
        return 0

    return in_one_line(checked)


def chosen(directory: Path) -> frozenset[str]:
    """Returns the names of the runs that won a choice of the suite in `directory`, and lost no later one."""
    path = directory / "choices.json"
    if not path.exists():
        return frozenset()
    choices = [
        choice for choice in read_object(path, "remove it, and the suite writes it again").values() if choice["chosen"]
    ]
    won = {choice["chosen"] for choice in choices}
    tried = {(entry["run"], choice["chosen"]) for choice in choices for entry in choice.get("candidates", ())}
    return frozenset(won - {run for run, winner in tried if run != winner})
