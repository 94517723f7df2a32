"""The functions that an experiment hands to the trainer.

An experiment is a package `experiments/NAME` with a model, a module `experiment.py` that ends in a `Recipe`, and a
`__main__.py` that calls `cli.main(RECIPE)`; its configs are `configs/NAME.py`. An `Experiment` has pure functions of
one seed and a whole batch, as if there were a single device. Seeds, devices, microbatches, rows, checkpoints and
resumption are the trainer's.

Fields of the config that the trainer reads are described where they are read: data in `input/dataset.py`, and
`optimizer.py`, `mesh.py`, `evaluation.py`, `recorder.py`; beside them there are `seeds`, `batch_size`, `tensorboard`,
`arguments` (`step.Program`) and the length of a run:

    config.epochs               in passes over the training data: an epoch at once, a row
                                of metrics after each, a checkpoint every `checkpoint_every` epochs

    config.steps                or in steps:
          .steps_per_dispatch   taken by one compiled call (1)
          .eval_every           steps between two rows of metrics, each with an evaluation
          .checkpoint_every     steps between two checkpoints
          .accumulate           microbatches, one after the other, that the gradient is the mean of (1)

A loss may be as simple as

    def loss(params, batch, key, progress):
        logits = model.apply({"params": params}, batch["image"].astype(jnp.float32))
        value = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()
        return value, {"loss": value}
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import ml_collections
import optax

from experiments.core.config import is_whole, require
from experiments.core.errors import UsageError
from experiments.core.input import dataset as data_lib
from experiments.core.input.dataset import Data
from experiments.core.kinds import Kinds

Params = Any  # a pytree of arrays
Batch = dict[str, jax.Array]
Metrics = dict[str, Any]  # by name, possibly nested

_ONE = ("steps_per_dispatch", "accumulate")  # fields that are 1 where they are left out


@dataclasses.dataclass(frozen=True)
class Probe:
    """Compares a network from row to row, by a few fixed examples.

    Attributes:
      find: `find(params, progress) -> found`: boolean arrays by name, of the same shapes on any devices.
      compare: `compare(before, now) -> metrics`: scalars of what was found in two rows that follow one another.
    """

    find: Callable[[Params, jax.Array], dict[str, jax.Array]]
    compare: Callable[[dict[str, jax.Array], dict[str, jax.Array]], Metrics]


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A model, its loss and its optimizer, for a single seed; the trainer adds the seed axis.

    `progress` is the fraction of the training steps already taken, from 0 to 1. `key` is a function of the seed and the
    step (and of the microbatch).

    Attributes:
      init: `init(key) -> params`.
      loss: `loss(params, batch, key, progress) -> (objective, metrics)`: what the gradient is taken of, penalties
        included, and scalars to be recorded, one of them the `loss` without penalties. Their means over the steps
        between two rows are in the row as `train_loss` and so on. Accumulation averages both over microbatches.
      evaluate: `evaluate(params, examples, progress) -> metrics`. A metric is a scalar over the whole data set, or has
        one value per example, [B], of which the trainer takes the mean; with `config.eval_batch_size` it must be the
        latter. A metric named `error` is prefixed by the split (`test_error`).
      conclude: `conclude(means) -> metrics`: scalars, of the means over all examples of what `evaluate` returns, which
        may then be [B, ...]; for what is no mean itself, as an entropy is of frequencies. None: the means are it.
      optimizer: applied to the gradient of the objective; most often `optimizer.make(config)`.
      pretrained: parameters to start from, NumPy arrays in a part of the tree that `init` makes, or all of it.
      pretrained_by_seed: whether these have a leading axis, of the config's seeds.
      after_update: `after_update(params, opt_state, gradient, progress) -> params, opt_state`, applied after every
        update: to put parameters back where they may lie, or to rewire a network by the `gradient` before the update.
      augment: `augment(key, images) -> images`, on the device, of a whole training batch before the loss sees it.
      flops_per_example: operations of a training step per example, forward and backward and without recomputation;
        without it rows have no utilisation (`mfu`).
      headline: the metrics of a row that the progress line shows; nested ones as `test_accuracy/1`.
      examine: `examine(params, examples) -> values`, arrays [B] by name, of small types: what is kept of each example
        with `config.export_examples`. None: nothing.
      probe: what else rows compare with the row before. None: nothing.
      at_end: `at_end(params) -> metrics`: further scalars of the last row, made of the arrays of one seed outside of
        compiled programs: for what passes over data by itself, such as training another head. None: nothing.
      exported: `exported(params) -> tree`: what `config.export_params` keeps of the parameters at the end. None: the
        parameters, as `evaluate` computes with them as they are.
    """

    init: Callable[[jax.Array], Params]
    loss: Callable[[Params, Batch, jax.Array, jax.Array], tuple[jax.Array, Metrics]]
    evaluate: Callable[[Params, Batch, jax.Array], Metrics]
    optimizer: optax.GradientTransformation
    pretrained: Params | None = None
    pretrained_by_seed: bool = False
    after_update: Callable[[Params, optax.OptState, Params, jax.Array], tuple[Params, optax.OptState]] = (
        lambda params, opt_state, gradient, progress: (params, opt_state)
    )
    augment: Callable[[jax.Array, jax.Array], jax.Array] | None = None
    flops_per_example: float | None = None
    headline: tuple[str, ...] = ()
    examine: Callable[[Params, Batch], dict[str, jax.Array]] | None = None
    conclude: Callable[[Metrics], Metrics] | None = None
    probe: Probe | None = None
    at_end: Callable[[Params], Metrics] | None = None
    exported: Callable[[Params], Params] | None = None


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How an experiment is made from a config.

    Attributes:
      name: the package under `experiments`.
      validate: raises `UsageError` for a config that cannot be run, before any data is read.
      build: the experiment for a valid config and its data.
      prepare: raises `UsageError` where this machine lacks what a valid config needs, and fetches what can be, as
        weights to start from; after `validate`, before any data are read.
      load: the data of a valid config; in memory by default, or with streams (`stream.py`).
      kinds: the kinds that its config chooses from, by which overrides are checked; None: it has none.
    """

    name: str
    validate: Callable[[ml_collections.ConfigDict], None]
    build: Callable[[ml_collections.ConfigDict, Data], Experiment]
    load: Callable[[ml_collections.ConfigDict], Data] = data_lib.load
    prepare: Callable[[ml_collections.ConfigDict], None] = lambda config: None
    kinds: Kinds | None = None


def by_steps(config: ml_collections.ConfigDict) -> bool:
    """Returns whether the length is given in steps."""
    return config.get("steps") is not None


def validate_length(config: ml_collections.ConfigDict) -> None:
    """Checks the length of a run, before its data are read."""
    if by_steps(config) == (config.get("epochs") is not None):
        raise UsageError("the length of a run is either config.epochs or config.steps")
    fields = ("steps", "steps_per_dispatch", "eval_every") if by_steps(config) else ("epochs",)
    for field in (*fields, "checkpoint_every", "accumulate"):
        value = config.get(field, 1 if field in _ONE else None)
        require(is_whole(value) and value > 0, field, value, "positive")
    if by_steps(config):
        at_once = config.get("steps_per_dispatch", 1)
        for field in ("steps", "eval_every", "checkpoint_every"):
            require(config[field] % at_once == 0, field, config[field], f"a multiple of steps_per_dispatch={at_once}")


@dataclasses.dataclass(frozen=True)
class Plan:
    """Lengths in steps; all but the first divide by `steps_per_dispatch`."""

    steps_per_epoch: int  # the incomplete last batch is dropped
    total_steps: int
    steps_per_dispatch: int
    eval_every: int
    checkpoint_every: int
    unit: str  # what people count this run in: "epoch" or "step"

    @staticmethod
    def of(config: ml_collections.ConfigDict, num_train: int) -> "Plan":
        """The plan of a valid `config` for `num_train` examples."""
        most = f"at most the {num_train} training images of {config.dataset}"
        require(config.batch_size <= num_train, "batch_size", config.batch_size, most)
        epoch = num_train // config.batch_size
        if not by_steps(config):
            largest = (2**31 - 1) // epoch
            allowed = f"at most {largest}: steps are counted in 31 bits"
            require(config.epochs <= largest, "epochs", config.epochs, allowed)
            return Plan(epoch, config.epochs * epoch, epoch, epoch, config.checkpoint_every * epoch, "epoch")
        at_once = config.get("steps_per_dispatch", 1)
        return Plan(epoch, config.steps, at_once, config.eval_every, config.checkpoint_every, "step")

    def is_row(self, step: int) -> bool:
        """Returns whether a row of metrics is due after `step` steps."""
        return step % self.eval_every == 0 or step == self.total_steps

    def is_checkpoint(self, step: int) -> bool:
        """Returns whether a checkpoint is due after `step` steps; one at the end comes by itself."""
        return step % self.checkpoint_every == 0

    def last_row(self, step: int) -> int:
        """The step of the last row due up to `step`."""
        return step if self.is_row(step) else step - step % self.eval_every

    def epochs(self, step: int) -> int | float:
        """The passes over the training data that `step` steps make."""
        epochs, rest = divmod(step, self.steps_per_epoch)
        return round(step / self.steps_per_epoch, 4) if rest else epochs

    def count(self, step: int) -> int:
        """`step` in units of the plan."""
        return step // self.steps_per_epoch if self.unit == "epoch" else step

    def describe(self, step: int) -> str:
        """`epoch 3` or `step 1404`."""
        return f"{self.unit} {self.count(step)}"
