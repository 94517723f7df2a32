"""Runs settings, on several processes if asked to, and collects what came out."""

import dataclasses
import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

import jax
import numpy as np

from experiments.core.pace import pace
from scripts.fuzz import calls, entries
from scripts.fuzz.entries import BEYOND
from scripts.fuzz.judge import Fault, judge
from scripts.fuzz.operators import truth
from scripts.fuzz.setting import Rows, Setting, as_rows, generator, read, write


@dataclasses.dataclass
class Failure:
    """A problem with a wrong answer: the line that reproduces it, what it was drawn to be, and what is wrong."""

    line: str
    kind: str
    faults: list[Fault]
    message: str = ""

    def __str__(self) -> str:
        return self.message or "; ".join(map(str, self.faults))


@dataclasses.dataclass
class Outcome:
    """What one setting came to.

    Attributes:
      setting: which.
      tried: problems, which are rows.
      beyond: those of them outside the documented range.
      refused: those that were not computed for being out of range.
      failures: problems with a wrong answer.
      judged: rows of which a quantity was compared, by its name.
      units: the largest error of a right answer, by quantity.
      ratio: likewise, as a share of what is let off.
      passes: over the data, of each row; empty where there is no scalar equation.
      slowest: most passes, and the line of that row.
    """

    setting: Setting
    tried: int = 0
    beyond: int = 0
    refused: int = 0
    failures: list[Failure] = dataclasses.field(default_factory=list)
    judged: dict[str, int] = dataclasses.field(default_factory=dict)
    units: dict[str, float] = dataclasses.field(default_factory=dict)
    ratio: dict[str, float] = dataclasses.field(default_factory=dict)
    passes: list[int] = dataclasses.field(default_factory=list)
    slowest: tuple[int, str] | None = None


def try_setting(setting: Setting, batches: int, seed: int, config: int) -> Outcome:
    """Draws rows of a setting and tries them."""
    outcome = Outcome(setting)
    function = None
    with jax.enable_x64(setting.working == "float64"):
        for batch in range(batches):
            rows = entries.draw(setting, generator(seed, config, batch))
            if function is None:
                function = _function(setting, rows)
            _try(outcome, rows, function, f"seed={seed} config={config} batch={batch} row=")
    return outcome


def try_problem(text: str) -> Outcome:
    """Tries the one problem that a line describes.

    Raises:
      ValueError: the line is not of the form that failures are printed in.
    """
    setting, data = read(text)
    with jax.enable_x64(setting.working == "float64"):
        if "x" in data:
            rows = as_rows(setting, data)
        else:
            drawn = entries.draw(setting, generator(data["seed"], data["config"], data["batch"]))
            rows = drawn.only(data["row"], setting.rows)
        rows.kinds = ["given" if near else BEYOND for near in entries.inside(setting, rows)]
        outcome = Outcome(setting)
        _try(outcome, rows, _function(setting, rows), "row=")
    outcome.tried = 1
    outcome.beyond = min(outcome.beyond, 1)
    outcome.failures = outcome.failures[:1]
    for failure in outcome.failures:
        failure.line = text
    return outcome


def _function(setting: Setting, rows: Rows) -> Callable[..., tuple[jax.Array, ...]]:
    if setting.known:
        return calls.compiled(setting, float(rows.k[0]), float(rows.lam[0]))
    return calls.compiled(setting)


def _try(outcome: Outcome, rows: Rows, function: Callable[..., tuple[jax.Array, ...]], drawn: str) -> None:
    setting = outcome.setting
    beyond = [kind == BEYOND for kind in rows.kinds]
    outcome.tried += setting.rows
    outcome.beyond += sum(beyond)
    try:
        results = calls.run(setting, rows, function)
    except ValueError as error:
        outcome.refused += setting.rows
        for row in np.flatnonzero(~np.array(beyond))[:1]:
            _fail(outcome, rows, int(row), drawn, [], f"refused: {str(error).splitlines()[0]}")
        return
    except Exception as error:  # whatever an operator dies of is a finding
        _fail(outcome, rows, 0, drawn, [], f"{type(error).__name__}: {str(error).splitlines()[0]}")
        return
    expected = truth(setting, rows)
    faults: dict[int, list[Fault]] = {}
    for verdict in judge(setting, rows, expected, results):
        name = verdict.name
        outcome.judged[name] = outcome.judged.get(name, 0) + verdict.judged
        outcome.units[name] = max(outcome.units.get(name, 0.0), verdict.units)
        outcome.ratio[name] = max(outcome.ratio.get(name, 0.0), verdict.ratio)
        for row, fault in verdict.faults.items():
            faults.setdefault(row, []).append(fault)
    for row, found in sorted(faults.items()):
        _fail(outcome, rows, row, drawn, found)
    counts = calls.passes_of(setting, rows)
    outcome.passes += counts.tolist()
    if counts.size and (outcome.slowest is None or counts.max() > outcome.slowest[0]):
        row = int(np.flatnonzero(rows.lam > 0)[np.argmax(counts)])
        outcome.slowest = int(counts.max()), write(setting, rows, row, f"{drawn}{row}")


def _fail(outcome: Outcome, rows: Rows, row: int, drawn: str, faults: list[Fault], message: str = "") -> None:
    line = write(outcome.setting, rows, row, f"{drawn}{row}")
    outcome.failures.append(Failure(line, rows.kinds[row], faults, message))


def try_all(planned: list[tuple[Setting, int]], seed: int, jobs: int, say: Callable[[str], None]) -> Iterator[Outcome]:
    """Tries all settings, and says how far it has come."""
    start = time.monotonic()
    total = sum(batches * setting.rows for setting, batches in planned)
    tried = failed = done = 0
    for outcome in _outcomes(planned, seed, jobs):
        done, tried, failed = done + 1, tried + outcome.tried, failed + len(outcome.failures)
        # Most of the time goes into compiling, which takes as long for any setting.
        left = pace(done, len(planned), time.monotonic() - start)
        what = f"{outcome.setting.operator} {outcome.setting.dtype} n={outcome.setting.n} p={outcome.setting.p:.4g}"
        say(
            f"[{done}/{len(planned)}] {what}: {len(outcome.failures)} of {outcome.tried} wrong; "
            f"{failed} of {tried} so far, {total - tried} to go, {left}"
        )
        yield outcome


def _outcomes(planned: list[tuple[Setting, int]], seed: int, jobs: int) -> Iterator[Outcome]:
    if jobs == 1:
        for config, (setting, batches) in enumerate(planned):
            yield try_setting(setting, batches, seed, config)
        return
    # Fresh processes: what JAX has started does not survive a fork.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [
            pool.submit(try_setting, setting, batches, seed, config)
            for config, (setting, batches) in enumerate(planned)
        ]
        for future in as_completed(futures):
            yield future.result()
