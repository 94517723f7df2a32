"""The training loop of every experiment.

A run is a sequence of compiled calls, each of which takes some steps for all seeds: an epoch at
once on data that stay on the device, or one step of a large model on a batch that has just come
(`plan.py` says which, `feed.py` where batches come from). The next call is under way before the
metrics of the last one are read. Everything random is a function of the seed and the step, so a run
that was killed ends with the numbers of one that was not.
"""

import itertools
import time
from contextlib import ExitStack, closing, nullcontext
from typing import Any

import jax
import ml_collections
import numpy as np
from jax.experimental import multihost_utils

from experiments.core import config as config_lib
from experiments.core.config import require, require_wholes
from experiments.core.errors import UsageError, printable
from experiments.core.input import dataset as data_lib
from experiments.core.input.dataset import Data
from experiments.core.record import checksums, metrics, summary, tensorboard
from experiments.core.record.environment import Launch
from experiments.core.record.files import write_json
from experiments.core.record.tensorboard import TensorBoard
from experiments.core.record.workdir import Workdir
from experiments.core.training import (
    checkpoint,
    compilation_cache,
    evaluation,
    export,
    feed,
    optimizer,
    pictures,
    plan,
    processes,
)
from experiments.core.training import mesh as mesh_lib
from experiments.core.training import state as state_lib
from experiments.core.training.checkpoint import Checkpoints, Restored
from experiments.core.training.experiment import Params, Recipe
from experiments.core.training.interrupt import Interrupt
from experiments.core.training.performance import Performance
from experiments.core.training.probe import Found, Prober
from experiments.core.training.program import Program
from experiments.core.training.progress import Progress
from experiments.core.training.state import TrainState
from experiments.core.training.stretch import Stretch

# What of JAX's options decides which numbers follow from a seed: a run has the same ones whatever the variables say.
_RANDOM = {
    "jax_default_prng_impl": "threefry2x32",
    "jax_threefry_partitionable": True,
    "jax_random_seed_offset": 0,
}


def validate(config: ml_collections.ConfigDict, num_devices: int | None = None) -> None:
    """Checks the fields that every experiment has, for so many devices, or for those there are."""
    config_lib.require_plain(config)
    data_lib.validate(config)
    plan.validate(config)
    optimizer.validate(config)
    require(config.batch_size > 0, "batch_size", config.batch_size, "positive")
    require_wholes(
        lambda seeds: 0 < len(seeds) == len(set(seeds)) and min(seeds) >= 0,
        "seeds",
        config.seeds,
        "a tuple of different integers in [0, 2**31)",
    )
    feed.validate(config)
    mesh_lib.validate(config, num_devices)
    evaluation.validate(config)
    export.validate(config)
    compilation_cache.validate(config)


def check_fields(recipe: Recipe, config: ml_collections.ConfigDict, num_devices: int | None = None) -> None:
    """Checks all fields for so many devices, or as many as JAX sees, of whatever kind.

    For another number than JAX sees, `config` must name all sizes of its mesh: see `mesh.of_devices`.

    Raises:
      UsageError: as it says.
    """
    with config_lib.reading(recipe.name):
        try:
            validate(config, num_devices)
            recipe.validate(config)
        except TypeError as error:  # of a config file; on the command line fields keep their types
            raise UsageError(f"a field of the config is of another type than is computed with: {error}") from error


def prepare(recipe: Recipe, config: ml_collections.ConfigDict) -> None:
    """Checks that this machine has what a valid config needs, and fetches what can be (`Recipe.prepare`)."""
    with config_lib.reading(recipe.name):
        recipe.prepare(config)


def check(recipe: Recipe, config: ml_collections.ConfigDict, path: Any) -> None:
    """Checks all fields, and that `path` holds no other run and can be written.

    Raises:
      UsageError: as it says.
    """
    check_fields(recipe, config)
    workdir = Workdir(path)
    workdir.check(config)
    workdir.check_writable()


def run(recipe: Recipe, config: ml_collections.ConfigDict, path: Any, launch: Launch | None = None) -> None:
    """Trains, or goes on training, what `recipe` makes of `config`, in the directory `path`.

    Of several processes (`jax.distributed`) each calls this with the same arguments; the first one
    writes, and only checkpoints are written by all: `path` must be one directory for all of them.
    Returns when the run is done, or when SIGTERM, SIGINT or SIGHUP has stopped it after a checkpoint.

    Raises:
      UsageError: for a config that cannot be run, or not on this machine, a directory that holds another run, or
        processes that were given different arguments.
    """
    processes.require_same([f"experiments.{recipe.name} --workdir={Workdir(path).path}", *config_lib.lines(config)])
    check_fields(recipe, config)
    workdir = Workdir(path)
    workdir.check(config)
    prepare(recipe, config)
    if workdir.is_done():
        if _is_first():
            print(printable(f"{path} is done: see {workdir.summary.name}"), flush=True)
        return
    start(recipe, config, workdir, launch or Launch())


def start(recipe: Recipe, config: ml_collections.ConfigDict, workdir: Workdir, launch: Launch) -> str | None:
    """As `run`, what is neither done nor invalid, on a machine that is prepared: the last step of it.

    Returns:
      What has asked it to stop, such as SIGTERM, if anything has; it may have come too late, when the run was done.
    """
    for option, value in _RANDOM.items():
        jax.config.update(option, value)
    compilation_cache.use(config)
    with config_lib.reading(recipe.name):
        experiment_run = _Run(recipe, config, recipe.load(config), workdir)
    with (
        closing(experiment_run),
        # Only now is anything written: a run that cannot start leaves no trace.
        experiment_run.interrupt,
        workdir.claim(config) if _is_first() else nullcontext(),
        jax.set_mesh(experiment_run.mesh),
    ):
        experiment_run.go(launch)
    return experiment_run.interrupt.received


def _is_first() -> bool:
    """Whether this process is the one that writes."""
    return jax.process_index() == 0


class _Run:
    """One process's part of a run; what can go wrong does before anything is written."""

    def __init__(self, recipe: Recipe, config: ml_collections.ConfigDict, data: Data, workdir: Workdir):
        self.recipe, self.config, self.workdir, self.prefix = recipe, config, workdir, data.prefix
        self.interrupt = Interrupt()
        self.program = program = Program(recipe, config, data)
        self.plan, self.mesh, self.experiment = program.plan, program.mesh, program.experiment
        export.validate_for(recipe.name, self.experiment, config)
        state_lib.require_memory(program.state)
        seeds = np.asarray(config.seeds if program.seed_axis else config.seeds[0], np.int32)
        self.everywhere = mesh_lib.replicated(self.mesh)
        self.seeds = mesh_lib.put(seeds, self.everywhere)
        self.probe = Prober(self.experiment, self.everywhere, seed_axis=program.seed_axis)
        with ExitStack() as opened:
            self.feed = feed.make(config, data, self.plan.steps_per_dispatch, self.mesh, seed_axis=program.seed_axis)
            opened.callback(self.feed.close)
            self.evaluate = program.make_evaluate()
            opened.callback(self.evaluate.close)
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Closes the streams, with the processes that feed them."""
        self._opened.close()

    def go(self, launch: Launch) -> None:
        """Trains from the last checkpoint that is intact to the end, or to an interruption."""
        saved_as = config_lib.to_json(self.config)
        restored = checkpoint.restore(self.workdir.checkpoints, self.program.state, saved_as)
        rows = self._rows_until(restored)
        # Only now is anything changed of what an earlier launch has left.
        if _is_first():
            git = self.workdir.record_launch(launch, self.recipe.name)["git"]
            if git["commit"] is None:
                self._say(f"no commit of the code is recorded: {git['why']}")
        if restored:
            self._pass_over(restored)
            now, state, unfinished = restored.step, restored.state, restored.stretch
            self._say(f"resuming after {self.plan.describe(now)}")
        else:
            now, state, unfinished = 0, state_lib.init(self.experiment, self.seeds, self.mesh, self.program.state), None
        with closing(Checkpoints(self.workdir.checkpoints, saved_as)) as checkpoints:
            board = self._tensorboard()
            if board and not rows:
                board.config(config_lib.lines(self.config))
            with closing(metrics.Writer(self.workdir.metrics if _is_first() else None, rows, board)) as writer:
                state, now = self._train(state, now, unfinished, checkpoints, writer)
        if now < self.plan.total_steps:
            by = self.interrupt.received or "a signal to another process"
            self._say(f"stopped by {by} after {self.plan.describe(now)}; the same command resumes")
            return
        self._finish(state.params, writer, board)

    def _finish(self, params: Params, writer: metrics.Writer, board: TensorBoard | None) -> None:
        """Writes what the config asks for of the parameters at the end, and the summary last."""
        config, seed_axis = self.config, self.program.seed_axis
        images = {}
        if config.get("tensorboard") or config.get("export_pictures"):
            images = pictures.images(self.experiment, params, self.everywhere, seed_axis=seed_axis)
        sums = {"metrics_sha256": writer.sha256} | export.write_files(
            *(config, self.workdir, params, self.evaluate, self.probe, images),
            exported=self.experiment.exported,
            seed_axis=seed_axis,
        )
        arrays = export.gather(params, seed_axis=False) if config.get("tensorboard") else {}
        if _is_first():
            result = summary.summarize(list(config.seeds), writer.rows[-1])
            if board:
                board.end(self.plan.total_steps, result, arrays, images)
            write_json(self.workdir.summary, result | sums)

    def _tensorboard(self) -> TensorBoard | None:
        """What TensorBoard is to show, if that is asked for, of the process that writes."""
        if not (self.config.get("tensorboard") and _is_first() and tensorboard.available()):
            return None
        return self._opened.enter_context(closing(TensorBoard(self.workdir.tensorboard)))

    def _train(
        self,
        state: TrainState,
        now: int,
        unfinished: Stretch | None,
        checkpoints: Checkpoints,
        writer: metrics.Writer,
    ) -> tuple[TrainState, int]:
        """Trains on from step `now`, perhaps within a stretch; the last state, and the step it is of."""
        at_once, total_steps = self.plan.steps_per_dispatch, self.plan.total_steps
        # The first chunk comes before the program is compiled, so that a stream's workers are at work meanwhile.
        first = [self.feed.chunk(now)] if now < total_steps else []
        chunks = itertools.chain(first, feed.chunks(self.feed, range(now + at_once, total_steps, at_once)))
        train, no_steps = self._compile()
        performance = self._performance()
        del first  # a batch on the device
        progress = Progress(self.experiment.headline, self.plan, now, len(self.config.seeds), self.interrupt.say)
        stretch = unfinished or Stretch(no_steps)

        def add_row() -> Stretch:
            """The stretch that begins with it."""
            seconds = stretch.seconds + (writer.rows[-1]["seconds"] if writer.rows else 0.0)
            found = self.probe(state.params, now / total_steps)
            row = self._row(now, seconds, state, stretch, found)
            if performance:
                rate = optimizer.learning_rate(self.config, now - 1, self.plan.total_steps) if now else None
                row |= {"learning_rate": rate, "performance": performance.row(stretch)}
            writer.append(row)
            if _is_first():
                progress.show(row)
            return Stretch(no_steps, found=found)

        if not writer.rows:
            stretch = add_row()
        stretch.start()
        is_warm = False
        while now < total_steps and not self._must_stop(now):
            state, step_metrics = train(state, self.seeds, self.feed.examples, next(chunks), np.int32(now))
            stretch.dispatched(step_metrics)
            now += at_once
            if not is_warm:
                jax.block_until_ready(step_metrics)
                progress.warm(now)
                is_warm = True
            is_row, is_checkpoint = self.plan.is_row(now), now % self.plan.checkpoint_every == 0
            if is_row or is_checkpoint:
                stretch.finish()
                if is_row:
                    stretch = add_row()
                if is_checkpoint:
                    checkpoints.save(now, state, stretch, writer.sha256)
                stretch.start()
            elif _is_first():
                progress.reached(now)
        stretch.finish()
        if now > 0:
            checkpoints.save(now, state, stretch, writer.sha256)
        return state, now

    def _say(self, message: str) -> None:
        if _is_first():
            self.interrupt.say(message)

    def _must_stop(self, now: int) -> bool:
        if jax.process_count() == 1:
            return self.interrupt.received is not None
        # All processes must stop after the same step. To agree on it takes them a message each, so
        # they do after rows and checkpoints only.
        if not (self.plan.is_row(now) or now % self.plan.checkpoint_every == 0):
            return False
        return bool(np.any(multihost_utils.process_allgather(np.asarray(self.interrupt.received is not None))))

    def _rows_until(self, restored: Restored | None) -> list[metrics.Row]:
        """The rows that belong to a checkpoint; none if there is no checkpoint.

        Raises:
          UsageError: they are not there, or there should be a checkpoint.
        """
        path = self.workdir.metrics
        if restored:
            last = self.plan.last_row(restored.step)
            return metrics.read_until(path, last, self.config.to_dict(), restored.rows_sha256)
        # The row of the first checkpoint is written before it is.
        most = 1 + self.plan.checkpoint_every // self.plan.eval_every
        if self.plan.checkpoint_every < self.plan.total_steps and (number := len(metrics.lines(path))) > most:
            raise UsageError(
                f"{path} has {number} rows, but there is no checkpoint in {self.workdir.checkpoints}: put back a copy "
                f"of one, or move {path.name} away to train from the start"
            )
        return []

    def _pass_over(self, restored: Restored) -> None:
        """Says what was restored, if it was not simply the last checkpoint, and sets those aside that are damaged."""
        used = self.plan.describe(restored.step)
        if not restored.verified:
            self._say(f"the checkpoint of {used} has no {checksums.NAME}: whether it is as it was saved cannot be told")
        for later, reason in restored.damaged.items():
            damaged = f"the checkpoint of {self.plan.describe(later)} is damaged ({reason})"
            target = checkpoint.set_aside(self.workdir.checkpoints, later) if _is_first() else None
            self._say(f"{damaged}: it is now {target}, and that of {used} is used instead")
        if restored.damaged and jax.process_count() > 1:
            multihost_utils.sync_global_devices("damaged checkpoints are set aside")

    def _compile(self) -> tuple[Any, Any]:
        """The train step, ahead of time, and its metrics over no steps at all [S, 0]; evaluation compiles too.

        Ahead of time, so that the first steps take as long as the others.
        """
        start = time.perf_counter()
        self._say("compiling the train step and the evaluation")
        lowered = self.program.trace_train().lower()
        no_steps = jax.tree.map(lambda _: np.zeros((len(self.config.seeds), 0), np.float32), lowered.out_info[1])
        train = lowered.compile()
        self.evaluate.compile(self.program.state.params)
        optimizer.learning_rate(self.config, 0, self.plan.total_steps)  # which rows have; JAX keeps what it compiles
        self._say(f"compiled in {time.perf_counter() - start:.1f} s")
        return train, no_steps

    def _performance(self) -> Performance | None:
        """What rows say of speed; runs in epochs, of small networks, leave it out."""
        if self.plan.unit == "epoch":
            return None
        performance = Performance.of(self.experiment, self.mesh, *self.program.first_batch(), len(self.config.seeds))
        if performance.why_no_mfu:
            self._say(f"mfu is not measured: {performance.why_no_mfu}")
        return performance

    def _row(self, now: int, seconds: float, state: TrainState, stretch: Stretch, found: Found) -> metrics.Row:
        trained = {f"train_{name}": values for name, values in stretch.means().items()}
        measured = trained | _prefixed(self.evaluate(state.params, now / self.plan.total_steps), self.prefix)
        measured |= self.probe.compare(stretch.found, found)
        diverged = np.atleast_1d(np.asarray(state.diverged))
        return {
            "epoch": self.plan.epochs(now),
            "step": now,
            "seconds": round(seconds, 4),
            "diverged": diverged.tolist(),
        } | metrics.per_seed(jax.tree.map(np.atleast_1d, measured), diverged)


def _prefixed(measured: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {f"{prefix}_error" if name == "error" else name: value for name, value in measured.items()}
