"""Trains the runs of a suite, from wherever an earlier one stopped: those first that others wait for."""

import contextlib
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from experiments.core.config import leaves
from experiments.core.console import clock
from experiments.core.errors import UsageError
from experiments.core.record.files import read_object, write_json
from experiments.core.record.workdir import Workdir
from experiments.core.suite.choice import Choice, choose
from experiments.core.suite.plan import Suite, SuiteRun
from experiments.core.suite.worker import Job, attempt, attempts, in_a_line
from experiments.core.training import train

CHOICES = "choices.json"


class Runner:
    """Trains those of `selected` (a part of `runs`) that are not done, with choices that are `given` or made here."""

    def __init__(
        self,
        suite: Suite,
        out: Path,
        runs: Sequence[SuiteRun],
        selected: Sequence[SuiteRun],
        command: Sequence[str],
        given: Mapping[str, Choice] | None = None,
    ):
        self.suite, self.out, self.runs, self.command, self.given = suite, out, runs, command, given or {}
        self.selected = {run.name: run for run in selected}
        self.failed: list[str] = []
        self.seconds: list[float] = []  # of the runs trained here

    def train(self, jobs: int) -> list[str]:
        """Trains `jobs` at once; returns the names of those that failed.

        Raises `Stopped` at SIGTERM or SIGINT, once the runs under way are saved, and `UsageError` if there are no data.
        """
        has_data = False
        for wave in self.waves():
            choices = choose(self.suite, self.out, self.runs, self.given) if any(run.best_of for run in wave) else {}
            to_train = [job for run in wave if (job := self._job(run, {**choices, **self.given}))]
            if to_train and not has_data:
                # Fetched and decoded once for all; where there are none, no run could begin.
                self.suite.recipe.load(to_train[0].config)
                has_data = True
            # A run that no other can be trained beside has the whole machine.
            alone = jobs == 1 or len(to_train) == 1
            outcomes = ((job, attempt(job)) for job in to_train) if alone else attempts(to_train, jobs)
            with contextlib.closing(outcomes):
                for job, outcome in outcomes:
                    self._over(self.selected[job.name], outcome, jobs)
        return self.failed

    def waves(self) -> Iterator[list[SuiteRun]]:
        """Yields the runs in order of dependency; those that can never start come last."""

        def awaited(run: SuiteRun) -> set[str | None]:
            rivals = {other.name for other in self.runs if run.best_of and other.candidate_for == run.best_of}
            return {run.weights_of, *rivals}

        waiting = self.selected
        while waiting:
            ready = {name: run for name, run in waiting.items() if not awaited(run) & waiting.keys()} or waiting
            yield list(ready.values())
            waiting = {name: run for name, run in waiting.items() if name not in ready}

    def _job(self, run: SuiteRun, choices: dict[str, Choice]) -> Job | None:
        """The job of a run; None if it is done already or cannot begin, which is printed."""
        try:
            setting = dict(run.setting)
            if run.best_of is not None:
                choice = choices[run.best_of]
                if choice["setting"] is None or set(choice["missing"]) - set(self.failed):
                    raise UsageError(f"its setting is not chosen yet: {', '.join(choice['missing'])} must run first")
                setting = choice["setting"] | setting
            config, workdir = self.suite.config(run, self.out, setting), Workdir(self.out / run.name)
            workdir.check(config)
            if workdir.is_done():
                self._say(run, f"{_result(workdir, self.suite.shown)}  was done")
                return None
            if run.weights_of is not None and not Path(config.pretrained).exists():
                raise UsageError(f"its weights are not there yet: {run.weights_of} must run first")
            if run.best_of is not None:  # the fields of others have been checked ahead of all runs
                train.check_fields(self.suite.recipe, config)
            return Job(self.suite.recipe.name, run.name, config, workdir.path, self.command)
        except Exception as error:
            self._fail(run, in_a_line(error))
            return None

    def _over(self, run: SuiteRun, outcome: float | str, jobs: int) -> None:
        if isinstance(outcome, str):
            self._fail(run, outcome)
            return
        self.seconds.append(outcome)
        undone = sum(not Workdir(self.out / name).is_done() for name in self.selected.keys() - self.failed)
        left = f"  (time left ~ {clock(statistics.mean(self.seconds) * undone / jobs)})" if undone else ""
        self._say(run, f"{_result(Workdir(self.out / run.name), self.suite.shown)}  {outcome:.0f} s{left}")

    def _fail(self, run: SuiteRun, reason: str) -> None:
        self.failed.append(run.name)
        self._say(run, f"FAILED: {reason}")

    def _say(self, run: SuiteRun, text: str) -> None:
        """Prints a line with the outcome of a run."""
        number, total = list(self.selected).index(run.name) + 1, len(self.selected)
        print(f"[{number:{len(str(total))}}/{total}] {run.name}  {text}", flush=True)


def write_choices(suite: Suite, out: Path, runs: Sequence[SuiteRun], given: Mapping[str, Choice] | None = None) -> None:
    """Writes what has been measured and chosen on validation; choices of others, and outdated ones, stay."""
    if choices := choose(suite, out, runs, given):
        path = out / CHOICES
        others = read_object(path, "remove it, and the suite writes it again") if path.exists() else {}
        decided = {name: choice for name, choice in choices.items() if choice["chosen"] or not others.get(name)}
        write_json(path, others | decided)


def _result(workdir: Workdir, shown: Sequence[str]) -> str:
    summary = workdir.read_summary()
    final = dict(leaves(summary["final"], prefix="", between="/"))
    means = {name: final.get(f"{name}/mean", "") for name in shown}
    parts = [f"{name} " + ("-" if mean is None else f"{mean:.2f} %") for name, mean in means.items() if mean != ""]
    if summary["diverged"]:
        parts.append(f"{summary['diverged']} of {len(summary['seeds'])} seeds diverged")
    return ", ".join(parts)
