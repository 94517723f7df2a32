"""All that results/accelerators/ is to hold: the experiments at full size on slices, and operators for every chip.

Each is a process of its own, by the interpreter of the environment that has its compiler. What is there already is
passed over, and what cannot be done, for want of a package or since the compiler refuses it, is said; the rest goes on.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.core.errors import UsageError
from scripts.aot import hardware, tables, wanted

# Of `make check-accelerators`.
ENVIRONMENTS = {"tpu": ".venv-tpu", "cuda": ".venv-cuda13"}
_ROOT = Path(__file__).resolve().parents[2]
_TRIES = 3
_OK = (0, 3)  # 3: a step that does not fit, which is a result


def commands(
    types: Sequence[str] | None, results: Path, *, anew: bool, everything: bool = False
) -> list[tuple[str, list[str]]]:
    """Types and arguments of all the processes; of those for some types, or for all.

    With `everything`, operators in every dtype, mode, length and place; without, what says most of them.

    Raises:
      UsageError: a type is unknown, or nothing is to be done for it.
    """
    common = [f"--results={results}", *(["--anew"] if anew else [])]
    found = []
    for run in wanted.RUNS:
        config = f"--config=configs/{run.experiment}.py:{run.variant}"
        overrides = [f"--config.{override}" for override in run.overrides]
        for type_ in run.types:
            options = [config, f"--type={type_}", f"--name={run.name}", *common]
            found.append((type_, [run.experiment, *options, "--", *overrides]))
    sweeps = [(type_, sweep.options) for sweep in wanted.OPERATORS for type_ in sweep.types]
    sweeps += [(type_, []) for type_ in wanted.CHIPS if everything]
    found += [(type_, ["operators", f"--type={type_}", *options, *common]) for type_, options in sweeps]
    if types is None:
        return found
    known = {type_ for type_, _ in found}
    for type_ in types:
        hardware.parse(type_)
        if type_ not in known:
            raise UsageError(f"--types={type_} is not allowed: it must be some of {', '.join(sorted(known))}")
    return [(type_, arguments) for type_, arguments in found if type_ in types]


def go(types: Sequence[str] | None, results: Path, *, anew: bool, everything: bool = False) -> int:
    """Does them all; returns 1 if one failed that could be tried."""
    todo = commands(types, results, anew=anew, everything=everything)
    pythons = {platform: _python(platform) for platform in ENVIRONMENTS}
    for platform, python in pythons.items():
        if python is None:
            print(f"nothing is compiled for {platform}: there is no {ENVIRONMENTS[platform]}/bin/python", flush=True)
    todo = [(type_, arguments) for type_, arguments in todo if pythons[hardware.parse(type_).device.platform]]
    failed, start = [], time.monotonic()
    for number, (type_, arguments) in enumerate(todo):
        left = (time.monotonic() - start) / number * (len(todo) - number) / 60 if number else None
        what = " ".join(arguments)
        print(f"[{number + 1}/{len(todo)}] {what}{f' (about {left:.0f} minutes left)' if left else ''}", flush=True)
        python = pythons[hardware.parse(type_).device.platform]
        assert python is not None
        # Where the compiler ends the process, one of the next tries at operators leaves out what did it.
        for _ in range(_TRIES):
            status = subprocess.run([python, "-m", "scripts.aot", *arguments], check=False, cwd=_ROOT).returncode
            if status >= 0:
                break
        if status not in _OK:
            failed.append(what)
    print(f"the tables are in {tables.write(results)}", flush=True)
    for what in failed:
        print(f"FAILED: {what}", file=sys.stderr)
    return 1 if failed else 0


def _python(platform: str) -> str | None:
    """The interpreter that has the compiler for a platform."""
    path = _ROOT / ENVIRONMENTS[platform] / "bin" / "python"
    return str(path) if path.exists() else None
