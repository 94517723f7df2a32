"""How much processor time `--help` of every entry point takes: `python -m scripts.bench.help`.

Starts each as a user does, in a process of its own, and writes the section `help` of `<results>/<hardware>.json`. Fails
if one takes more than LIMIT_SECONDS.
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.core import console
from scripts.bench import record

ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 4.0


def entry_points() -> list[str]:
    """The modules that can be run: packages with a `__main__`, and what the Makefile runs."""
    packages = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for top in ("experiments", "scripts")
        for path in (ROOT / top).glob("**/__main__.py")
    }
    made = re.findall(r"(?:\$\(RUN\)|/python -m) ((?:experiments|scripts)[\w.]+)", (ROOT / "Makefile").read_text())
    return sorted(packages | set(made))


def ask(module: str) -> tuple[str, float]:
    """What `--help` of a module prints, and the seconds of a processor that it takes.

    Raises:
      RuntimeError: it ends with another status than 0.
    """
    before = os.times()
    done = subprocess.run([sys.executable, "-m", module, "--help"], cwd=ROOT, capture_output=True, text=True)
    after = os.times()
    if done.returncode:
        raise RuntimeError(f"{module} --help ends with {done.returncode}: {done.stderr}")
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return done.stdout, used


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    options = record.parse(record.parser("scripts.bench.help", __doc__), arguments)
    environment = record.begin("scripts.bench.help", arguments, options.results)
    seconds = {}
    for module in entry_points():
        seconds[module] = round(ask(module)[1], 3)
        print(f"{seconds[module]:6.2f} s  {module}", flush=True)
    rows = [{"module": module, "processor_seconds": used} for module, used in seconds.items()]
    document = {"load_average": record.load_average(), "limit_seconds": LIMIT_SECONDS, "rows": rows}
    print(f"results are in {record.write(options.results, 'help', environment, document)}")
    slow = [module for module, used in seconds.items() if used > LIMIT_SECONDS]
    if slow:
        print(f"error: more than {LIMIT_SECONDS} s: {', '.join(slow)}", file=sys.stderr)
    return int(bool(slow))


if __name__ == "__main__":
    console.run(main)
