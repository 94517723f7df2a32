"""The training loop of every experiment: from the last checkpoint to the end, or to an interruption.

A run is a sequence of compiled calls, each of which takes some steps for all seeds (`plan.py` says how many, `feed.py`
where batches come from). The next call is under way before the metrics of the last one are read. Everything random is a
function of the seed and the step, so a run that was killed ends with the numbers of one that was not.
"""

import contextlib
import itertools
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from types import FrameType
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from experiments.core import config as config_lib
from experiments.core.errors import UsageError, printable
from experiments.core.record import metrics
from experiments.core.record.files import write_json
from experiments.core.record.summary import summarize
from experiments.core.record.workdir import Workdir
from experiments.core.training import checkpoint, export, feed, optimizer, rows
from experiments.core.training import mesh as mesh_lib
from experiments.core.training import step as step_lib
from experiments.core.training.checkpoint import Checkpoints
from experiments.core.training.experiment import Params
from experiments.core.training.processes import from_first, is_first
from experiments.core.training.program import Program
from experiments.core.training.rows import MetricsSinceRow, Prober
from experiments.core.training.step import TrainState


class Interrupt:
    """While entered, the first SIGTERM, SIGINT or SIGHUP is only noted; a second SIGTERM or SIGINT acts as usual.

    orbax and JAX leave these signals alone (of several processes, `processes.py` sees to it), so that without this a
    preempted run would lose what it did since the last checkpoint. Ignored signals, as SIGHUP by nohup, stay so.
    SIGHUP comes twice when a terminal is closed, from it and from its shell: further ones change nothing.
    """

    _SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def __init__(self) -> None:
        self.received: str | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupt":
        heeded = [number for number in self._SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        self._previous = {number: signal.signal(number, self._note) for number in heeded}
        return self

    def __exit__(self, *exception: object) -> None:
        self._restore(*self._previous)

    def say(self, line: str) -> None:
        """Prints a line; an output that takes none, as a closed terminal, is a reason to stop."""
        try:
            print(printable(line), flush=True)
        except OSError:
            self.received = self.received or "a closed output"
            # All that is still to be printed, some of it when Python ends, goes nowhere.
            with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), sys.stdout.fileno())

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = self.received or signal.Signals(number).name
        self._restore(*(other for other in self._previous if other != signal.SIGHUP))

    def _restore(self, *numbers: signal.Signals) -> None:
        for number in numbers:
            signal.signal(number, self._previous[number])


class _Beginning(NamedTuple):
    """The steps that have been taken, the state after them, the rows up to then, and the metrics since the last row."""

    step: int
    state: TrainState
    rows: list[metrics.Row]
    since_row: MetricsSinceRow | None


class Loop:
    """This process's part of a run, for which the feed is open."""

    def __init__(self, program: Program, workdir: Workdir, interrupt: Interrupt):
        self.program, self.workdir, self.interrupt = program, workdir, interrupt
        self.setup, self.plan = program.setup, program.setup.plan
        self.config_as_json = config_lib.to_json(self.setup.config)
        seeds = self.setup.config.seeds if self.setup.seed_axis else self.setup.config.seeds[0]
        self.seeds = mesh_lib.put(np.asarray(seeds, np.int32), self.setup.everywhere)

    def go(self, command: Sequence[str], experiment: str) -> None:
        """Trains, and writes what the config asks for at the end; `experiment` is the name to record."""
        beginning = self._begin(command, experiment)
        with ExitStack() as opened:
            wanted = self.setup.config.get("tensorboard") and is_first()
            if board := metrics.tensorboard(self.workdir.tensorboard, beginning.rows) if wanted else None:
                opened.callback(board.close)
            path = self.workdir.metrics if is_first() else None
            writer = opened.enter_context(closing(metrics.Writer(path, beginning.rows, board)))
            of = self.config_as_json, self.setup.data.fingerprint
            checkpoints = opened.enter_context(closing(Checkpoints(self.workdir.checkpoints, *of)))
            state, step = self._train(beginning, checkpoints, writer)
            if step == self.plan.total_steps:
                self._finish(state.params, writer, board)
            else:
                by = self.interrupt.received or "a signal to another process"
                self._say(f"stopped by {by} after {self.plan.describe(step)}; the same command resumes")

    def _begin(self, command: Sequence[str], experiment: str) -> _Beginning:
        """Restores the newest checkpoint that is intact, with the rows up to it, or makes a fresh state.

        Raises `UsageError` if they are damaged, or not those of the run; nothing has been changed then.
        """
        intact, damaged = from_first(lambda: checkpoint.find(self.workdir.checkpoints))
        if intact is None:
            restored, known = None, self._no_rows()
        else:
            path = self.workdir.checkpoints / str(intact)
            of = self.config_as_json, self.setup.data.fingerprint
            restored = checkpoint.restore(path, self.program.state, *of)
            last = self.plan.last_row(intact)
            known = metrics.read_until(self.workdir.metrics, last, self.setup.config.to_dict())
        # Only now is anything changed of what an earlier launch has left.
        if is_first():
            git = self.workdir.record_launch(command, experiment, self.setup.data.fingerprint)["git"]
            if git["commit"] is None:
                self._say("no commit of the code is recorded: git finds none")
        for step, reason in damaged:
            target = checkpoint.set_aside(self.workdir.checkpoints, step) if is_first() else None
            self._say(f"the checkpoint of {self.plan.describe(step)} is damaged ({reason}): it is now {target}")
        if damaged and jax.process_count() > 1:
            multihost_utils.sync_global_devices("damaged checkpoints are set aside")
        if restored is None:
            state = step_lib.init(self.setup.experiment, self.seeds, self.setup.mesh, self.program.state)
            return _Beginning(0, state, known, None)
        self._say(f"resuming after {self.plan.describe(intact)}")
        return _Beginning(intact, restored[0], known, restored[1])

    def _no_rows(self) -> list[metrics.Row]:
        """Refuses rows that only a run with a checkpoint can have; the row of the first one is written before it is."""
        path, plan = self.workdir.metrics, self.plan
        most = 1 + plan.checkpoint_every // plan.eval_every
        if plan.checkpoint_every < plan.total_steps and (number := len(metrics.lines(path))) > most:
            raise UsageError(
                f"{path} has {number} rows, but there is no checkpoint in {self.workdir.checkpoints}: put back a copy "
                f"of one, or move {path.name} away to train from the start"
            )
        return []

    def _train(self, beginning: _Beginning, checkpoints: Checkpoints, writer: metrics.Writer) -> tuple[TrainState, int]:
        """Trains to the end, or to an interruption; returns the last state, and the step it is of."""
        plan, at_once = self.plan, self.plan.steps_per_dispatch
        step, state = beginning.step, beginning.state
        # The first chunk comes before the program is compiled, so that a stream's workers are at work meanwhile.
        first = [self.program.feed.chunk(step)] if step < plan.total_steps else []
        later = feed.chunks(self.program.feed, range(step + at_once, plan.total_steps, at_once))
        chunks = itertools.chain(first, later)
        train, no_steps = self._compile()
        del first  # a batch on the device
        prober = Prober(self.setup)
        progress = rows.Progress(self.setup.experiment.headline, plan, step, self._say)

        def add_row() -> MetricsSinceRow:
            row, found = rows.measure(self.program, prober, step, state, since_row, writer.rows)
            writer.append(row)
            progress.show(row)
            return MetricsSinceRow(no_steps, found=found)

        since_row = beginning.since_row or MetricsSinceRow(no_steps)
        if not writer.rows:
            since_row = add_row()
        since_row.start()
        while step < plan.total_steps and not self._must_stop(step):
            state, step_metrics = train(
                state, self.seeds, self.program.feed.examples, next(chunks), np.int32(step), self.setup.arguments
            )
            since_row.dispatched(step_metrics)
            step += at_once
            if plan.is_row(step) or plan.is_checkpoint(step):
                since_row.finish()
                if plan.is_row(step):
                    since_row = add_row()
                if plan.is_checkpoint(step):
                    checkpoints.save(step, state, since_row)
                since_row.start()
            else:
                progress.reached(step)
        since_row.finish()
        if step > 0:
            checkpoints.save(step, state, since_row)
        return state, step

    def _compile(self) -> tuple[Any, Any]:
        """The train step, and its metrics over no steps at all, [S, 0]; the evaluation is compiled, too."""
        start = time.perf_counter()
        self._say("compiling the train step and the evaluation")
        lowered = self.program.trace_train().lower()
        no_steps = jax.tree.map(lambda _: np.zeros((len(self.setup.config.seeds), 0), np.float32), lowered.out_info[1])
        train = lowered.compile()
        self.program.evaluate.compile(self.program.state.params)
        optimizer.learning_rate(self.setup.config, 0, self.plan.total_steps)  # which rows have; JAX keeps it compiled
        self._say(f"compiled in {time.perf_counter() - start:.1f} s")
        return train, no_steps

    def _must_stop(self, step: int) -> bool:
        if jax.process_count() == 1:
            return self.interrupt.received is not None
        # All processes must stop after the same step: to agree on it takes a message each, after rows and checkpoints.
        if not (self.plan.is_row(step) or self.plan.is_checkpoint(step)):
            return False
        return bool(np.any(multihost_utils.process_allgather(np.asarray(self.interrupt.received is not None))))

    def _finish(self, params: Params, writer: metrics.Writer, board: Any) -> None:
        """Writes what the config asks for of the parameters at the end, and the summary last."""
        checksums = export.write_files(self.program, self.workdir, params)
        arrays = export.gather(params) if self.setup.config.get("tensorboard") else {}
        if board:
            board.write_histograms(self.plan.total_steps, arrays)
            board.flush()
        if is_first():
            result = summarize(list(self.setup.config.seeds), writer.rows[-1])
            write_json(self.workdir.summary, result | {"metrics_sha256": metrics.sha256_of(writer.rows)} | checksums)
        self._say(f"results are in {self.workdir.path}: {self.workdir.summary.name}, {self.workdir.metrics.name}")

    def _say(self, message: str) -> None:
        if is_first():
            self.interrupt.say(message)
