"""What an experiment hands to the trainer."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import ml_collections
import numpy as np
import optax

from experiments.core.data import Data
from experiments.core.feed import HostBatches

Params = Any  # a pytree of arrays
Batch = dict[str, jax.Array]
Metrics = dict[str, Any]  # scalars by name, possibly nested


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A model, its loss and its optimizer, for a single seed; the trainer adds the seed axis.

    `progress` is the fraction of the training steps already taken, from 0 to 1; schedules other
    than the optimizer's own are functions of it. `key` is fresh in every step.

    Attributes:
      init: `init(key) -> params`.
      loss: `loss(params, batch, key, progress) -> (objective, loss)`, means over one batch: what
        the gradient is taken of, and what is recorded as `train_loss`, without penalties.
      evaluate: `evaluate(params, examples, progress) -> metrics`. A metric is a scalar over the
        whole data set, or has one value per example, of which the trainer takes the mean; where
        `config.eval_batch_size` has the data set evaluated in parts, only the latter will do. A
        metric named `error` is prefixed by the split (`test_error`); others keep their name.
      optimizer: applied to the gradient of the objective.
      project: `project(params, progress) -> params`, applied after every update.
      augment: `augment(key, images) -> images`, on the device, of a whole training batch before
        the loss sees it; the key is fresh in every step.
      stream: `stream(seed, rows) -> HostBatches`, those rows of the batches of `config.feed="stream"`;
        without it they are made of the training data in memory.
      flops_per_example: operations of a training step per example, forward and backward and
        without recomputation; without it they are counted in the gradient of the loss as traced,
        where loops count as a single round.
      headline: the metrics that the progress line shows.
    """

    init: Callable[[jax.Array], Params]
    loss: Callable[[Params, Batch, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
    evaluate: Callable[[Params, Batch, jax.Array], Metrics]
    optimizer: optax.GradientTransformation
    project: Callable[[Params, jax.Array], Params] = lambda params, progress: params
    augment: Callable[[jax.Array, jax.Array], jax.Array] | None = None
    stream: Callable[[int, np.ndarray], HostBatches] | None = None
    flops_per_example: float | None = None
    headline: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How an experiment is made from a config.

    Attributes:
      name: the package under `experiments`.
      validate: raises `UsageError` for a config that cannot be run, before any data is read.
      build: the experiment for a valid config and its data.
    """

    name: str
    validate: Callable[[ml_collections.ConfigDict], None]
    build: Callable[[ml_collections.ConfigDict, Data], Experiment]
