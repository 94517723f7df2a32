"""The training loop of every experiment.

Between two rows of metrics lies one epoch: a single compiled call that takes all its steps for all
seeds, on data that stay on the device. Everything random is a function of the seed and the step, so
a run that was killed ends with the numbers of one that was not.
"""

import time
from contextlib import closing
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from experiments.core import data as data_lib
from experiments.core import metrics, optimizer, step, summary
from experiments.core.batches import seeds_epoch_indices
from experiments.core.checkpoint import Checkpoints
from experiments.core.config import require
from experiments.core.environment import Launch
from experiments.core.errors import UsageError
from experiments.core.experiment import Recipe
from experiments.core.files import write_json
from experiments.core.interrupt import Interrupt
from experiments.core.progress import Progress
from experiments.core.workdir import Workdir


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the fields that every experiment has."""
    data_lib.validate(config)
    optimizer.validate(config)
    for field in ("epochs", "batch_size", "checkpoint_every"):
        require(config[field] > 0, field, config[field], "positive")
    seeds = config.seeds
    require(
        len(seeds) > 0
        and len(set(seeds)) == len(seeds)
        and all(isinstance(seed, int) and 0 <= seed < 2**31 for seed in seeds),
        "seeds",
        seeds,
        "a tuple of different integers in [0, 2**31)",
    )


def run(recipe: Recipe, config: ml_collections.ConfigDict, path: Any, launch: Launch | None = None) -> None:
    """Trains, or goes on training, what `recipe` makes of `config`, in the directory `path`.

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
    with Interrupt() as interrupt, workdir.claim(config):
        workdir.record_launch(launch or Launch())
        experiment_run.go(interrupt)


class _Run:
    """One process's part of a run."""

    def __init__(self, recipe: Recipe, config: ml_collections.ConfigDict, data: data_lib.Data, workdir: Workdir):
        require(
            config.batch_size <= data.num_train,
            "batch_size",
            config.batch_size,
            f"at most the {data.num_train} training images of {config.dataset}",
        )
        self.config, self.data, self.workdir = config, data, workdir
        self.experiment = recipe.build(config, data)
        self.steps_per_epoch = data.num_train // config.batch_size
        self.total_steps = config.epochs * self.steps_per_epoch
        self.seeds = jnp.asarray(config.seeds, jnp.int32)
        self.train_examples = jax.device_put(data.train)
        self.evaluation_examples = jax.device_put(data.evaluation)

    def go(self, interrupt: Interrupt) -> None:
        """Trains from the last checkpoint to the end, or to an interruption."""
        with closing(Checkpoints(self.workdir.checkpoints)) as checkpoints:
            state = step.init(self.experiment, self.seeds)
            first_step = checkpoints.latest_step() or 0
            if first_step:
                state = checkpoints.restore(first_step, like=state)
                print(f"resuming after epoch {first_step // self.steps_per_epoch}", flush=True)
            rows = self._rows_until(first_step)
            tensorboard = self.workdir.tensorboard if self.config.tensorboard else None
            with closing(metrics.Writer(self.workdir.metrics, rows, tensorboard)) as writer:
                self._train(state, checkpoints, writer, interrupt)
        last = writer.rows[-1]
        if last["step"] < self.total_steps:
            print(f"stopped by {interrupt.received} after epoch {last['epoch']}; the same command resumes")
        else:
            write_json(self.workdir.summary, summary.summarize(list(self.config.seeds), last))

    def _train(
        self, state: step.TrainState, checkpoints: Checkpoints, writer: metrics.Writer, interrupt: Interrupt
    ) -> None:
        train, evaluate = self._compile(state)
        epoch = writer.rows[-1]["epoch"] if writer.rows else 0
        progress = Progress(self.experiment.headline, self.config.epochs, epoch, len(self.seeds))
        if epoch == 0:
            no_losses = np.full(len(self.seeds), np.nan)
            writer.append(self._row(0, 0.0, state, no_losses, evaluate))
            progress.show(writer.rows[-1])
        while epoch < self.config.epochs and not interrupt.received:
            start = time.perf_counter()
            state, losses = train(state, self.seeds, self.train_examples, *self._inputs(epoch))
            jax.block_until_ready(losses)
            seconds = writer.rows[-1]["seconds"] + time.perf_counter() - start
            epoch += 1
            writer.append(self._row(epoch, seconds, state, np.asarray(losses).mean(axis=1), evaluate))
            progress.show(writer.rows[-1])
            if epoch % self.config.checkpoint_every == 0:
                checkpoints.save(epoch * self.steps_per_epoch, state)
        if epoch > 0:
            checkpoints.save(epoch * self.steps_per_epoch, state)

    def _rows_until(self, step: int) -> list[metrics.Row]:
        """The rows that belong to the checkpoint of `step`; none if there is no checkpoint."""
        rows = [row for row in metrics.read(self.workdir.metrics) if 0 < step >= row["step"]]
        if step and (not rows or rows[-1]["step"] != step):
            raise UsageError(f"{self.workdir.metrics} lacks rows up to the checkpoint of step {step}")
        return rows

    def _compile(self, state: step.TrainState) -> tuple[Any, Any]:
        """Compiles ahead of time, so that the seconds of the first epoch are those of the others."""
        start = time.perf_counter()
        train = jax.jit(step.make_train(self.experiment, self.total_steps), donate_argnums=0)
        evaluate = jax.jit(step.make_evaluate(self.experiment))
        compiled = (
            train.lower(state, self.seeds, self.train_examples, *self._inputs(0)).compile(),
            evaluate.lower(state.params, self.evaluation_examples, np.float32(0)).compile(),
        )
        print(f"compiled in {time.perf_counter() - start:.1f} s", flush=True)
        return compiled

    def _inputs(self, epoch: int) -> tuple[np.ndarray, np.int32]:
        indices = seeds_epoch_indices(self.config.seeds, epoch, self.data.num_train, self.config.batch_size)
        return indices, np.int32(epoch * self.steps_per_epoch)

    def _row(
        self, epoch: int, seconds: float, state: step.TrainState, losses: np.ndarray, evaluate: Any
    ) -> metrics.Row:
        measured = evaluate(state.params, self.evaluation_examples, np.float32(epoch / self.config.epochs))
        measured = jax.device_get({"train_loss": losses} | _prefixed(measured, self.data.prefix))
        diverged = np.asarray(state.diverged)
        return {
            "epoch": epoch,
            "step": epoch * self.steps_per_epoch,
            "seconds": round(seconds, 4),
            "diverged": diverged.tolist(),
        } | metrics.per_seed(measured, diverged)


def _prefixed(measured: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {f"{prefix}_error" if name == "error" else name: value for name, value in measured.items()}
