"""What the tables of all experiments have in common: files, command, which runs won a sweep and which are left out."""

from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.core.record.files import read_object, write_atomically, write_json
from experiments.core.report.command import on_directory
from experiments.core.report.markdown import Numbers
from experiments.core.report.results import Problem, Run


def make(
    directory: Path,
    found: tuple[Sequence[Run], Sequence[Problem]],
    measure: Callable[[Sequence[Run], frozenset[str]], Numbers],
    markdown: Callable[[Numbers], list[str]],
) -> list[Path]:
    """Prints a table, writes it to `table.md` and its numbers to `table.json`; returns both paths.

    Args:
      directory: to write to; the suite's, if one made the runs.
      found: the runs, and what is left out of the table, which it ends with.
      measure: the numbers, of the runs and of the names of those that won a choice.
      markdown: the lines for them; every part of the table ends in an empty one.
    """
    runs, problems = found
    numbers = measure(runs, _chosen(directory))
    lines = markdown(numbers)
    if problems:
        lines += ["### Not in the tables", "", *(f"- `{problem.name}`: {problem.reason}" for problem in problems), ""]
    numbers = numbers | {"problems": [{"run": problem.name, "reason": problem.reason} for problem in problems]}
    text = "\n".join(lines or ["No runs.", ""])
    print(text)
    paths = [directory / "table.md", directory / "table.json"]
    write_atomically(paths[0], text)
    write_json(paths[1], numbers)
    return paths


def outcome(row: Numbers) -> list[str]:
    """The last cells of a final run: how many seeds there are, and how many of them diverged."""
    return [str(len(row["seeds"])), str(row["diverged"])]


def outcome_of_candidate(row: Numbers) -> list[str]:
    """The last cells of a run of a sweep: how many seeds diverged, and whether it was chosen."""
    return [f"{row['diverged']} of {len(row['seeds'])}", "chosen" if row["chosen"] else ""]


def _chosen(directory: Path) -> frozenset[str]:
    """The names of the runs that won a choice of the suite in `directory`, but for those that lost a later one."""
    path = directory / "choices.json"
    if not path.exists():
        return frozenset()
    choices = read_object(path, "remove it, and the suite writes it again")
    won = {choice["chosen"] for choice in choices.values() if choice["chosen"]}
    lost = {
        entry["run"]
        for choice in choices.values()
        for entry in choice.get("candidates", ())
        if choice["chosen"] and entry["run"] != choice["chosen"]
    }
    return frozenset(won - lost)


def main(module: str, doc: str | None, make: Callable[[Path], list[Path]], arguments: Sequence[str]) -> int:
    """The command `python -m module DIR` that makes a table; returns its exit status."""

    def work(directory: Path) -> int:
        make(directory)
        return 0

    return on_directory(module, doc, work, arguments)
