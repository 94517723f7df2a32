"""What the tables of all experiments have in common: their files, their command, and which runs of a sweep won."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments.core.record.files import read_object, write_atomically, write_json
from experiments.core.report.command import on_directory


def write(directory: Path, numbers: dict[str, Any], lines: Sequence[str]) -> list[Path]:
    """Prints the lines of a table, writes them to `table.md` and its numbers to `table.json`; returns both paths."""
    text = "\n".join(lines) + "\n"
    print(text)
    paths = [directory / "table.md", directory / "table.json"]
    write_atomically(paths[0], text)
    write_json(paths[1], numbers)
    return paths


def chosen(directory: Path) -> frozenset[str]:
    """The names of the runs that won a choice of the suite in `directory`."""
    path = directory / "choices.json"
    if not path.exists():
        return frozenset()
    choices = read_object(path, "remove it, and the suite writes it again")
    return frozenset(choice["chosen"] for choice in choices.values() if choice["chosen"])


def main(module: str, doc: str | None, make: Callable[[Path], list[Path]], arguments: Sequence[str]) -> int:
    """The command `python -m module DIR` that makes a table; returns its exit status."""

    def work(directory: Path) -> int:
        make(directory)
        return 0

    return on_directory(module, doc, work, arguments)
