"""Prints how large the repository is, room by room, beside the budgets: `python -m scripts.size`, or `make size`.

It reports and never fails. It counts the files that git tracks: lines of Python and of the scripts and styles of pages,
and words of Markdown except in the `table.md` of results. A room over its budget is marked.
"""

import argparse
import fnmatch
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from experiments.core import console

_CODE = (".py", ".js", ".css")
# The name of a room, its patterns of paths, and the most lines it may have. A file belongs to the first room with a
# matching pattern; `*` also matches slashes.
ROOMS: tuple[tuple[str, tuple[str, ...], int | None], ...] = (
    ("fuzz, chaos, mutants", ("scripts/fuzz/*", "scripts/chaos/*", "tests/*_mutants.py"), 0),
    ("tests", ("tests/*",), 17_000),
    ("ops/scalar/kernels", ("ops/scalar/kernels/*",), 650),
    ("ops/scalar without kernels", ("ops/scalar/*",), 2_350),
    ("ops/isotonic", ("ops/isotonic/*",), 900),
    ("ops/baselines", ("ops/baselines/*",), 1_250),
    ("ops/interface", ("ops/interface.py",), 420),
    ("ops, public modules", ("ops/*",), 3_100),
    ("reports of core and experiments", ("experiments/*/report/*", "experiments/*/report.py"), 1_600),
    ("experiments/core/training", ("experiments/core/training/*",), 1_900),
    ("core: input, record, suite, CLI", ("experiments/core/*",), 2_000),
    ("experiments/vision", ("experiments/vision/*",), 1_150),
    ("four experiments without report", ("experiments/*",), 4_100),
    ("configs", ("configs/*",), 900),
    ("scripts/launch", ("scripts/launch/*",), 1_150),
    ("scripts/compile", ("scripts/compile/*",), 800),
    ("scripts/bench", ("scripts/bench/*",), 1_400),
    ("scripts/compare", ("scripts/compare/*",), 1_200),
    ("scripts/report, paper_figures", ("scripts/report/*", "scripts/paper_figures/*"), 900),
    ("other scripts", ("scripts/*",), None),
    ("docs", ("docs/*",), None),
    ("results", ("results/*",), None),
    ("everything else", ("*",), None),
)
_ALL_BUT_TESTS, _RESULTS, _FILES, _WORDS = 26_000, 200, 750, 30_000


def room_of(path: str) -> str:
    """Returns the name of the room that a file belongs to."""
    return next(name for name, patterns, _ in ROOMS if any(fnmatch.fnmatchcase(path, one) for one in patterns))


def lines(texts: Mapping[str, str], files: Sequence[str]) -> list[str]:
    """Returns the lines of the report.

    Args:
      texts: contents of files of code and Markdown, by path.
      files: paths of all files.
    """
    found = [f"{'room':<34}{'lines':>8}{'at most':>9}{'files':>8}{'words':>8}"]
    for name, _, limit in ROOMS:
        own = [path for path in files if room_of(path) == name]
        code = _code(texts, own)
        most = "-" if limit is None else f"{limit:,}"
        row = f"{name:<34}{code:>8,}{most:>9}{len(own):>8,}{_words(texts, own):>8,}"
        found.append(row + _mark(code, limit))
    tests = {path for path in files if path.startswith("tests/")}
    results = sum(path.startswith("results/") for path in files)
    totals = (
        ("all but tests, lines", _code(texts, set(files) - tests), _ALL_BUT_TESTS),
        ("results, files", results, _RESULTS),
        ("all files", len(files), _FILES),
        ("Markdown, words", _words(texts, files), _WORDS),
    )
    return [*found, "", *(f"{name:<34}{value:>8,}{limit:>9,}" + _mark(value, limit) for name, value, limit in totals)]


def _code(texts: Mapping[str, str], files: Iterable[str]) -> int:
    return sum(texts[path].count("\n") for path in files if path.endswith(_CODE))


def _words(texts: Mapping[str, str], files: Iterable[str]) -> int:
    written = [path for path in files if path.endswith(".md") and not path.endswith("/table.md")]
    return sum(len(texts[path].split()) for path in written)


def _mark(value: int, limit: int | None) -> str:
    return "" if limit is None or value <= limit else f"  {value - limit:,} over"


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    argparse.ArgumentParser(prog="python -m scripts.size", description=(__doc__ or "").split(":")[0]).parse_args(
        arguments
    )
    listed = subprocess.run(["git", "ls-files", "-z"], check=False, capture_output=True, text=True)
    if listed.returncode:
        print(f"no sizes: {listed.stderr.strip()}")
        return 0
    files = [path for path in listed.stdout.split("\0") if path and Path(path).is_file()]
    texts = {path: Path(path).read_text(errors="replace") for path in files if path.endswith((*_CODE, ".md"))}
    print("\n".join(lines(texts, files)))
    return 0


if __name__ == "__main__":
    console.run(main)
