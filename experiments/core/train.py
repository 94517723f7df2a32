"""The training loop of every experiment.

A run is a sequence of compiled calls, each of which takes some steps for all seeds: an epoch at
once on data that stay on the device, or one step of a large model on a batch that has just come
(`plan.py` says which, `feed.py` where batches come from). The next call is under way before the
losses of the last one are read. Everything random is a function of the seed and the step, so a run
that was killed ends with the numbers of one that was not.
"""

import time
from contextlib import closing, nullcontext
from typing import Any

import jax
import ml_collections
import numpy as np
from jax.experimental import multihost_utils

from experiments.core import data as data_lib
from experiments.core import evaluation, feed, metrics, optimizer, plan, step, summary
from experiments.core import mesh as mesh_lib
from experiments.core.checkpoint import Checkpoints
from experiments.core.config import require
from experiments.core.environment import Launch
from experiments.core.errors import UsageError
from experiments.core.experiment import Recipe
from experiments.core.files import write_json
from experiments.core.interrupt import Interrupt
from experiments.core.interval import Interval
from experiments.core.performance import Performance
from experiments.core.progress import Progress
from experiments.core.workdir import Workdir


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the fields that every experiment has."""
    data_lib.validate(config)
    plan.validate(config)
    optimizer.validate(config)
    require(config.batch_size > 0, "batch_size", config.batch_size, "positive")
    seeds = config.seeds
    require(
        len(seeds) > 0
        and len(set(seeds)) == len(seeds)
        and all(isinstance(seed, int) and 0 <= seed < 2**31 for seed in seeds),
        "seeds",
        seeds,
        "a tuple of different integers in [0, 2**31)",
    )
    feed.validate(config)
    mesh_lib.validate(config)
    evaluation.validate(config)


def run(recipe: Recipe, config: ml_collections.ConfigDict, path: Any, launch: Launch | None = None) -> None:
    """Trains, or goes on training, what `recipe` makes of `config`, in the directory `path`.

    Of several processes (`jax.distributed`) each calls this with the same arguments; the first one
    writes, and only checkpoints are written by all: `path` must be one directory for all of them.
    Returns when the run is done, or when SIGTERM or SIGINT has stopped it after a checkpoint.

    Raises:
      UsageError: for a config that cannot be run, or a directory that holds another run.
    """
    validate(config)
    recipe.validate(config)
    workdir = Workdir(path)
    workdir.check(config)
    if workdir.summary.exists():
        print(f"{path} is done: see {workdir.summary.name}")
        return
    data = data_lib.load(config)
    experiment_run = _Run(recipe, config, data, workdir)
    # Only now is anything written: a run that cannot start leaves no trace.
    with Interrupt() as interrupt, workdir.claim(config) if _is_first() else nullcontext():
        if _is_first():
            workdir.record_launch(launch or Launch())
        with jax.set_mesh(experiment_run.mesh):
            experiment_run.go(interrupt)


def _is_first() -> bool:
    """Whether this process is the one that writes."""
    return jax.process_index() == 0


def _say(message: str) -> None:
    if _is_first():
        print(message, flush=True)


class _Run:
    """One process's part of a run."""

    def __init__(self, recipe: Recipe, config: ml_collections.ConfigDict, data: data_lib.Data, workdir: Workdir):
        self.config, self.data, self.workdir = config, data, workdir
        self.plan = plan.Plan.of(config, data.num_train)
        self.mesh = mesh_lib.make(config)
        self.experiment = recipe.build(config, data)
        # A large model trains alone, and goes without the axis.
        self.seed_axis = self.plan.unit == "epoch" or len(config.seeds) > 1
        seeds = np.asarray(config.seeds if self.seed_axis else config.seeds[0], np.int32)
        self.seeds = mesh_lib.put(seeds, mesh_lib.replicated(self.mesh))
        self.feed = self._make_feed()
        self.evaluation_examples = evaluation.put(data.evaluation, config.get("eval_batch_size"), self.mesh)

    def _make_feed(self) -> feed.Feed:
        config, at_once = self.config, self.plan.steps_per_dispatch
        if config.get("feed", "resident") == "resident":
            return feed.Resident(
                self.data.train, config.seeds, config.batch_size, at_once, self.mesh, seed_axis=self.seed_axis
            )
        (seed,) = config.seeds
        rows = mesh_lib.local_rows(self.mesh, config.batch_size)
        if self.experiment.stream:
            host = self.experiment.stream(seed, rows)
        else:
            host = feed.InMemoryBatches(self.data.train, config.batch_size, seed, rows)
        return feed.Streamed(host, config.batch_size, at_once, self.mesh)

    def go(self, interrupt: Interrupt) -> None:
        """Trains from the last checkpoint to the end, or to an interruption."""
        with closing(Checkpoints(self.workdir.checkpoints)) as checkpoints:
            like = step.abstract(self.experiment, self.seeds, self.mesh)
            first_step = checkpoints.latest_step() or 0
            if first_step:
                state, interval = checkpoints.restore(first_step, like)
                _say(f"resuming after {self.plan.describe(first_step)}")
            else:
                state, interval = step.init(self.experiment, self.seeds, like), self._new_interval()
            rows = self._rows_until(first_step)
            tensorboard = self.workdir.tensorboard if self.config.get("tensorboard") else None
            with closing(metrics.Writer(self.workdir.metrics if _is_first() else None, rows, tensorboard)) as writer:
                last_step = self._train(state, first_step, interval, checkpoints, writer, interrupt)
        if last_step < self.plan.total_steps:
            by = interrupt.received or "a signal to another process"
            _say(f"stopped by {by} after {self.plan.describe(last_step)}; the same command resumes")
        elif _is_first():
            write_json(self.workdir.summary, summary.summarize(list(self.config.seeds), writer.rows[-1]))

    def _train(
        self,
        state: step.TrainState,
        now: int,
        interval: Interval,
        checkpoints: Checkpoints,
        writer: metrics.Writer,
        interrupt: Interrupt,
    ) -> int:
        """Trains on from step `now`, and returns the step it has come to."""
        train, evaluate = self._compile(state)
        performance = self._performance(state)
        progress = Progress(self.experiment.headline, self.plan, now, len(self.config.seeds))
        at_once, total_steps = self.plan.steps_per_dispatch, self.plan.total_steps
        chunks = feed.chunks(self.feed, range(now, total_steps, at_once))

        def add_row() -> None:
            seconds = interval.seconds + (writer.rows[-1]["seconds"] if writer.rows else 0.0)
            row = self._row(now, seconds, state, interval.losses, evaluate)
            if self.plan.unit == "step":
                row["learning_rate"] = optimizer.learning_rate(self.config, max(now - 1, 0))
                row["performance"] = performance.row(interval)
            writer.append(row)
            if _is_first():
                progress.show(row)

        if not writer.rows:
            add_row()
        interval.start()
        while now < total_steps and not self._must_stop(interrupt, now):
            state, losses = train(state, self.seeds, self.feed.examples, next(chunks), np.int32(now))
            interval.dispatched(losses)
            now += at_once
            is_checkpoint = now % self.plan.checkpoint_every == 0
            if self.plan.is_row(now) or is_checkpoint:
                interval.finish()
                if self.plan.is_row(now):
                    add_row()
                    interval = self._new_interval()
                if is_checkpoint:
                    checkpoints.save(now, state, interval)
                interval.start()
        interval.finish()
        if now > 0:
            checkpoints.save(now, state, interval)
        return now

    def _new_interval(self) -> Interval:
        return Interval(np.zeros((len(self.config.seeds), 0), np.float32))

    def _must_stop(self, interrupt: Interrupt, now: int) -> bool:
        if jax.process_count() == 1:
            return interrupt.received is not None
        # All processes must stop after the same step. To agree on it takes them a message each, so
        # they do after rows only.
        if not self.plan.is_row(now):
            return False
        return bool(np.any(multihost_utils.process_allgather(np.asarray(interrupt.received is not None))))

    def _rows_until(self, step: int) -> list[metrics.Row]:
        """The rows that belong to the checkpoint of `step`; none if there is no checkpoint."""
        rows = [row for row in metrics.read(self.workdir.metrics) if 0 < step >= row["step"]]
        if step and (not rows or rows[-1]["step"] != self.plan.last_row(step)):
            raise UsageError(f"{self.workdir.metrics} lacks rows up to the checkpoint of step {step}")
        return rows

    def _compile(self, state: step.TrainState) -> tuple[Any, Any]:
        """Compiles ahead of time, so that the seconds of the first epoch are those of the others."""
        start = time.perf_counter()
        everywhere = mesh_lib.replicated(self.mesh)
        train = jax.jit(
            step.make_train(self.experiment, self.plan.total_steps, self.feed.take, self.config.get("accumulate", 1)),
            donate_argnums=0,
            out_shardings=(jax.tree.map(lambda leaf: leaf.sharding, state), everywhere),
        )
        batched = self.config.get("eval_batch_size") is not None
        evaluate = jax.jit(
            evaluation.make(self.experiment, batched=batched, seed_axis=self.seed_axis), out_shardings=everywhere
        )
        compiled = (
            train.lower(state, self.seeds, self.feed.examples, self.feed.chunk(0), np.int32(0)).compile(),
            evaluate.lower(state.params, self.evaluation_examples, np.float32(0)).compile(),
        )
        _say(f"compiled in {time.perf_counter() - start:.1f} s")
        return compiled

    def _performance(self, state: step.TrainState) -> Performance:
        batch = jax.eval_shape(
            lambda examples, chunk: step.first_batch(
                self.experiment, self.feed.take, examples, chunk, seed_axis=self.seed_axis
            ),
            self.feed.examples,
            self.feed.chunk(0),
        )
        params = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[self.seed_axis :], leaf.dtype), state.params)
        return Performance.of(self.experiment, self.mesh, params, batch, len(self.config.seeds))

    def _row(self, now: int, seconds: float, state: step.TrainState, losses: np.ndarray, evaluate: Any) -> metrics.Row:
        measured = evaluate(state.params, self.evaluation_examples, np.float32(now / self.plan.total_steps))
        loss = losses.mean(axis=1) if losses.size else np.full(len(losses), np.nan)
        measured = jax.device_get({"train_loss": loss} | _prefixed(measured, self.data.prefix))
        diverged = np.atleast_1d(np.asarray(state.diverged))
        return {
            "epoch": self.plan.epochs(now),
            "step": now,
            "seconds": round(seconds, 4),
            "diverged": diverged.tolist(),
        } | metrics.per_seed(jax.tree.map(np.atleast_1d, measured), diverged)


def _prefixed(measured: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {f"{prefix}_error" if name == "error" else name: value for name, value in measured.items()}
