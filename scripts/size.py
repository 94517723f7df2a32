"""Prints how large the repository is, room by room, beside the budgets: `python -m scripts.size`, or `make size`.

It reports and never fails. It counts the files that git tracks: lines of Python and of the scripts and styles of pages,
and words of Markdown except in the `table.md` of results. What is over its budget is marked.
"""

import argparse
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from experiments.core import console

_CODE = (".py", ".js", ".css")
_BUDGETS = {
    "ops": 9_900,
    "experiments/core": 5_400,
    "experiments' reports": 1_300,
    "scripts": 5_700,
    "tests": 18_800,
    "all but tests": 28_000,
    "tracked files": 650,
    "Markdown, words": 30_000,
}


def room_of(path: str) -> str:
    """Returns the room of a file: its first folder, and in `experiments` also the second one or the reports."""
    if re.fullmatch(r"experiments/(?!core/)\w+/report(/.*|\.py)", path):
        return "experiments' reports"
    first, *rest = path.split("/")
    return "/".join([first, *rest[:1]]) if first == "experiments" else first if rest else "the root"


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    argparse.ArgumentParser(prog="python -m scripts.size", description=(__doc__ or "").split(":")[0]).parse_args(
        arguments
    )
    listed = subprocess.run(["git", "ls-files", "-z"], check=False, capture_output=True, text=True)
    if listed.returncode:
        print(f"no sizes: {listed.stderr.strip()}")
        return 0
    files = [path for path in listed.stdout.split("\0") if Path(path).is_file()]
    counts = dict.fromkeys(sorted(map(room_of, files)), 0) | {"all but tests": 0, "tracked files": len(files)}
    counts["Markdown, words"] = 0
    for path in files:
        if path.endswith(_CODE):
            count = Path(path).read_text(errors="replace").count("\n")
            for name in {room_of(path), "tests" if path.startswith("tests/") else "all but tests"}:
                counts[name] += count
        elif path.endswith(".md") and not path.endswith("/table.md"):
            counts["Markdown, words"] += len(Path(path).read_text(errors="replace").split())
    for name, value in counts.items():
        if value:
            most = _BUDGETS.get(name, value)
            over = f"  {value - most:,} over" if value > most else ""
            print(f"{name:<28}{value:>8,}{f'{most:,}' if name in _BUDGETS else '-':>9}{over}")
    return 0


if __name__ == "__main__":
    console.run(main)
