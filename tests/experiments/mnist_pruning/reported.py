"""How a method that a test adds is shown."""

from pathlib import Path
from typing import Any

from experiments.core.report.results import load
from experiments.mnist_pruning.report import figures, table
from tests.scripts.workdirs import write_workdir


def assert_reported(directory: Path, row: str, legend: str, **fields: Any) -> None:
    """A run with these fields of the config has this row in the table, and a dotted line with this legend."""
    write_workdir(directory / "run", [[90.0, 88.0], [4.0, 5.0]], **fields)
    table.make(directory)
    assert f"| {row} | 4.50 ± " in (directory / "table.md").read_text()
    figure = figures.draw(load(directory)[0])["all-methods-layers123"]
    (line,) = figure.axes[0].get_lines()
    assert (line.get_color(), line.get_linestyle()) == ("#123456", ":")
    assert figure.legends[0].get_texts()[0].get_text().startswith(f"{legend}: 4.5 ± ")
