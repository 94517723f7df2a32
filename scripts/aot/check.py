"""All that results/accelerators/ is to hold: the experiments at full size on slices, and operators for every chip.

Each is a process of its own, by the interpreter of the environment that has its compiler. What is there already is
passed over, and what cannot be done, for want of a package or since the compiler refuses it, is said; the rest goes on.
"""

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from experiments.core.errors import UsageError
from experiments.core.pace import clock
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


def go(types: Sequence[str] | None, results: Path, *, anew: bool, everything: bool = False, jobs: int = 1) -> int:
    """Does them all, as many at once as there are jobs; returns 1 if one failed that could be tried."""
    todo = commands(types, results, anew=anew, everything=everything)
    pythons = {platform: _python(platform) for platform in ENVIRONMENTS}
    for platform, python in pythons.items():
        if python is None:
            print(f"nothing is compiled for {platform}: there is no {ENVIRONMENTS[platform]}/bin/python", flush=True)
    todo = [(type_, arguments) for type_, arguments in todo if pythons[hardware.parse(type_).device.platform]]
    # Operators for a chip are one section of a file, to which one process at a time adds.
    files: dict[object, list[tuple[str, list[str]]]] = {}
    for type_, arguments in todo:
        files.setdefault(type_ if arguments[0] == "operators" else tuple(arguments), []).append((type_, arguments))
    begun, done, start = itertools.count(1), itertools.count(1), time.monotonic()
    compilers, pace = _Compilers(named=jobs > 1), ""

    def run(type_: str, arguments: list[str]) -> str | None:
        """What failed."""
        nonlocal pace
        what = " ".join(arguments)
        if compilers.stopped:
            return what
        print(f"[{next(begun)}/{len(todo)}] {what}{pace}\n", end="", flush=True)  # at once: others print, too
        python = pythons[hardware.parse(type_).device.platform]
        assert python is not None
        status = compilers.run([python, "-m", "scripts.aot", *arguments], type_)
        count = next(done)
        left = (time.monotonic() - start) / count * (len(todo) - count)
        pace = f" (about {clock(left)} left, if the rest is like what is done)"
        return None if status in _OK else what

    pool = ThreadPoolExecutor(jobs)
    try:
        tried = [pool.submit(lambda of_file: [run(*each) for each in of_file], of_file) for of_file in files.values()]
        failed = [what for each in tried for what in each.result() if what]
    except BaseException:
        compilers.stop()
        pool.shutdown(cancel_futures=True)
        # Those that were ended by hand must not pass for programs that end the compiler.
        for attempt in results.glob("*.attempt"):
            attempt.unlink()
        raise
    pool.shutdown()
    print(f"the tables are in {tables.write(results)}", flush=True)
    for what in failed:
        print(f"FAILED: {what}", file=sys.stderr)
    return 1 if failed else 0


class _Compilers:
    """Processes that compile, several at a time.

    Attributes:
      stopped: none is to begin any more.
    """

    def __init__(self, named: bool):
        """Lines of each begin with its name where they are named, to tell them from those of others."""
        self._named, self._running, self.stopped = named, set[subprocess.Popen[str]](), False
        self._beginning = threading.Lock()  # so that none begins unseen while all are stopped

    def run(self, command: Sequence[str], name: str) -> int:
        """Its exit status."""
        status = -1
        # Where the compiler ends the process, one of the next tries at operators leaves out what did it.
        for _ in range(_TRIES):
            process = self._begin(command)
            if process is None:
                break
            with process:
                for line in process.stdout or ():
                    print(f"{name}: {line}", end="", flush=True)
                status = process.wait()
            self._running.discard(process)
            if status >= 0:
                break
        return status

    def _begin(self, command: Sequence[str]) -> subprocess.Popen[str] | None:
        out, errors = (subprocess.PIPE, subprocess.STDOUT) if self._named else (None, None)
        with self._beginning:
            if self.stopped:
                return None
            process = subprocess.Popen(command, cwd=_ROOT, text=True, stdout=out, stderr=errors)
            self._running.add(process)
            return process

    def stop(self) -> None:
        """Ends those that go on."""
        with self._beginning:
            self.stopped = True
            for process in tuple(self._running):
                process.terminate()


def _python(platform: str) -> str | None:
    """The interpreter that has the compiler for a platform."""
    path = _ROOT / ENVIRONMENTS[platform] / "bin" / "python"
    return str(path) if path.exists() else None
