"""Trains the runs of a suite, from wherever an earlier one stopped: those first that others wait for."""

import concurrent.futures
import contextlib
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future
from pathlib import Path

from experiments.core.errors import UsageError
from experiments.core.record.files import read_object, write_json
from experiments.core.record.workdir import Workdir
from experiments.core.suite.choice import choose
from experiments.core.suite.plan import Fields, Suite, SuiteRun
from experiments.core.suite.worker import Outcome, Pool, attempt, in_a_line, stoppable
from experiments.core.training import train

CHOICES = "choices.json"


def train_all(
    suite: Suite,
    out: Path,
    runs: Sequence[SuiteRun],
    selected: Sequence[SuiteRun],
    command: Sequence[str],
    jobs: int = 1,
) -> list[str]:
    """Trains those of `selected` (a part of `runs`) that are not done, `jobs` at once.

    Returns:
      The names of those that failed.

    Raises:
      Stopped: at SIGTERM or SIGINT, once the runs under way are saved.
      UsageError: the first run finds no data, so that none would.
    """
    with stoppable():
        return _Runner(suite, out, runs, selected, command, jobs).go()


class _Runner:
    def __init__(
        self,
        suite: Suite,
        out: Path,
        runs: Sequence[SuiteRun],
        selected: Sequence[SuiteRun],
        command: Sequence[str],
        jobs: int,
    ):
        self.suite, self.out, self.runs, self.command, self.jobs = suite, out, runs, command, jobs
        self.selected = dict(enumerate(selected, start=1))
        self.pool = Pool(suite, out, command, jobs)
        self.waiting = dict(self.selected)
        self.under_way: dict[int, tuple[float, Future[Outcome]]] = {}  # when each was begun
        self.failed: list[str] = []
        self.has_data = False
        self.cost_done = self.seconds = 0.0  # of the runs trained here

    def go(self) -> list[str]:
        with contextlib.closing(self.pool):
            while self.waiting or self.under_way:
                ready = self._ready() if len(self.under_way) < self.jobs else []
                if not ready:
                    futures = {future: number for number, (_, future) in self.under_way.items()}
                    for future in concurrent.futures.wait(futures, return_when=FIRST_COMPLETED).done:
                        outcome = self.pool.outcome(future)
                        del self.under_way[futures[future]]
                        self._over(futures[future], outcome)
                    continue
                number, run = ready[0], self.waiting.pop(ready[0])
                if (setting := self._setting_to_train(number)) is None:
                    continue
                if not self.has_data:
                    # Fetched and decoded once for all; where there are none, no run could begin.
                    self.suite.recipe.load(self.suite.config(run, self.out, setting))
                    self.has_data = True
                if self.jobs == 1 or (len(ready) == 1 and not self.under_way):
                    # A run that no other can be trained beside has the whole machine.
                    self._over(number, attempt(self.suite, self.out, self.command, run, setting))
                else:
                    self.under_way[number] = time.monotonic(), self.pool.begin(run, setting)
        return self.failed

    def _ready(self) -> list[int]:
        """The first runs that wait for none of those under way, or to come: two at most."""
        unsettled = {self.selected[number].name for number in [*self.waiting, *self.under_way]}
        ready = []
        for number, run in self.waiting.items():
            awaited = {run.weights_of}
            if run.best_of is not None:
                # Also one whose results are there already, as long as its process has not said that it is over.
                awaited |= {other.name for other in self.runs if other.candidate_for == run.best_of}
            if not awaited & unsettled:
                ready.append(number)
            if len(ready) == 2:
                break
        # What others wait for comes before them; where it does not, a run has to say what it lacks.
        return ready or ([] if self.under_way else list(self.waiting)[:2])

    def _setting_to_train(self, number: int) -> Fields | None:
        """The fields of a run to put over its base; None if it is done already or cannot begin, which is said."""
        run = self.selected[number]
        try:
            setting = self._setting(run)
            if not self._is_done(run, setting):
                return setting
            self._say(number, f"{_result(self.out / run.name, self.suite.shown)}  was done")
        except Exception as error:
            self._fail(number, in_a_line(error))
        return None

    def _over(self, number: int, outcome: Outcome) -> None:
        run = self.selected[number]
        if outcome.error:
            self._fail(number, outcome.error)
            return
        self.seconds += outcome.seconds
        self.cost_done += self.suite.cost(run)
        result = _result(self.out / run.name, self.suite.shown)
        self._say(number, f"{result}  {outcome.seconds:.0f} s{self._time_left()}")

    def _is_done(self, run: SuiteRun, setting: Fields) -> bool:
        """Whether a run is there already; one that is not can begin.

        Raises:
          UsageError: it is not, and cannot begin; or its directory holds another.
        """
        config = self.suite.config(run, self.out, setting)
        workdir = Workdir(self.out / run.name)
        workdir.check(config)
        if workdir.is_done():
            return True
        if run.weights_of is not None and not Path(config.pretrained).exists():
            raise UsageError(f"its weights are not there yet: {run.weights_of} must run first")
        if run.best_of is not None:  # the fields of others have been checked ahead of all runs
            train.check_fields(self.suite.recipe, config)
        return False

    def _setting(self, run: SuiteRun) -> Fields:
        """The fields to put over the base: the winner's, if the run takes one, then the run's own."""
        if run.best_of is None:
            return run.setting
        choice = choose(self.suite, self.out, self.runs, only=run.best_of)[run.best_of]
        if choice["setting"] is None or set(choice["missing"]) - set(self.failed):
            raise UsageError(f"its setting is not chosen yet: {', '.join(choice['missing'])} must run first")
        return choice["setting"] | dict(run.setting)

    def _fail(self, number: int, reason: str) -> None:
        self.failed.append(self.selected[number].name)
        self._say(number, f"FAILED: {reason}")

    def _say(self, number: int, text: str) -> None:
        """Prints a line with the outcome of a run."""
        width = len(str(len(self.selected)))
        print(f"[{number:{width}}/{len(self.selected)}] {self.selected[number].name}  {text}", flush=True)

    def _time_left(self) -> str:
        rate, now = self.seconds / self.cost_done, time.monotonic()
        waiting = [run for run in self.waiting.values() if not Workdir(self.out / run.name).summary.exists()]
        expected = [rate * self.suite.cost(run) for run in waiting]
        for number, (begun, _) in self.under_way.items():
            expected.append(max(0.0, rate * self.suite.cost(self.selected[number]) - (now - begun)))
        left = max(sum(expected) / self.jobs, max(expected, default=0.0))
        return f"  (time left ~ {duration(left)})" if expected else ""


def write_choices(suite: Suite, out: Path, runs: Sequence[SuiteRun]) -> None:
    """Writes what has been measured and chosen on validation, if the suite chooses at all; choices of others stay.

    So does a choice of which nothing counts any more, as the runs were made with other configs than they would have
    today, from a directory of another name for example: there is no other record of it.

    Raises:
      DamagedError: the file that is there holds something else.
    """
    if choices := choose(suite, out, runs):
        path = out / CHOICES
        others = read_object(path, "remove it, and the suite writes it again") if path.exists() else {}
        decided = {name: choice for name, choice in choices.items() if choice["chosen"] or not others.get(name)}
        write_json(path, others | decided)


def duration(seconds: float) -> str:
    """`45 s` or `12 min`."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _result(path: Path, shown: Sequence[str]) -> str:
    summary = Workdir(path).read_summary()
    final = summary["final"]
    parts = []
    for name in shown:
        value = final
        for part in name.split("/"):
            value = value.get(part, {})
        if value:
            parts.append(f"{name} " + ("-" if value["mean"] is None else f"{value['mean']:.2f} %"))
    if summary["diverged"]:
        parts.append(f"{summary['diverged']} of {len(summary['seeds'])} seeds diverged")
    return ", ".join(parts)
