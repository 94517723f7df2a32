"""The compiled function of a run: K training steps at once.

Several seeds are carried along a leading axis by `vmap`: the small networks of several seeds make
one batched matrix product, and ten seeds cost three times what one does. Where `seeds` is a scalar
there is no such axis. `S` seeds, `K` steps, `B` batch, `A` microbatches.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import keystr, tree_map_with_path

from experiments.core.training.experiment import Batch, Experiment, Metrics, Params
from experiments.core.training.feed import Resident, Take
from experiments.core.training.state import TrainState

_AUGMENT = 2**31 - 1  # sets the key of augmentation apart from those that a loss derives by small numbers


def _augmented(experiment: Experiment, batch: Batch, step_key: jax.Array) -> Batch:
    if experiment.augment is None:
        return batch
    return batch | {"image": experiment.augment(jax.random.fold_in(step_key, _AUGMENT), batch["image"])}


def make_train(
    experiment: Experiment, total_steps: int, take: Take = Resident.take, accumulate: int = 1
) -> Callable[..., tuple[TrainState, Metrics]]:
    """`train(state, seeds [S], examples, chunk, first_step) -> state, metrics`, each metric [S, K].

    `take`, `examples` and `chunk` are those of a feed; the leaves of the chunk begin with [S, K].
    Without an axis of seeds, here and in the results, S is left out.
    """
    gradient_of = _gradient(experiment, accumulate)

    def train_one(
        state: TrainState, seed: jax.Array, examples: Any, chunk: Any, first_step: jax.Array
    ) -> tuple[TrainState, Metrics]:
        key = jax.random.key(seed)

        def step(state: TrainState, at: tuple[jax.Array, Any]) -> tuple[TrainState, Metrics]:
            number, at_step = at
            step_key = jax.random.fold_in(key, number + 1)
            batch = _augmented(experiment, take(examples, at_step), step_key)
            progress = number.astype(jnp.float32) / total_steps
            gradient, metrics = gradient_of(state.params, batch, step_key, progress)
            # Adam's bias correction in optax mixes types; everything else here holds to strict promotion.
            with jax.numpy_dtype_promotion("standard"):
                updates, opt_state = experiment.optimizer.update(gradient, state.opt_state, state.params)
            params = optax.apply_updates(state.params, updates)
            progress = (number + 1).astype(jnp.float32) / total_steps
            params, opt_state = experiment.after_update(params, opt_state, gradient, progress)
            return TrainState(params, opt_state, state.diverged), tree_map_with_path(_scalar, metrics)

        num_steps = jax.tree.leaves(chunk)[0].shape[0]
        steps = first_step + jnp.arange(num_steps, dtype=jnp.int32)
        if num_steps == 1:
            # On CPUs XLA runs a transformer's step half as fast inside a loop, even one of a single round.
            state, metrics = step(state, jax.tree.map(lambda leaf: leaf[0], (steps, chunk)))
            metrics = jax.tree.map(lambda value: value[None], metrics)
        else:
            state, metrics = jax.lax.scan(step, state, (steps, chunk))
        leaves = [metrics["loss"], *jax.tree.leaves(state.params)]
        finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in leaves]).all()
        return dataclasses.replace(state, diverged=state.diverged | ~finite), metrics

    def train(
        state: TrainState, seeds: jax.Array, examples: Any, chunk: Any, first_step: jax.Array
    ) -> tuple[TrainState, Metrics]:
        over_seeds = jax.vmap(train_one, in_axes=(0, 0, None, 0, None)) if seeds.ndim else train_one
        return over_seeds(state, seeds, examples, chunk, first_step)

    return train


def _scalar(path: Any, value: Any) -> jax.Array:
    """Checks that a metric is a scalar, and makes it float32, as a checkpoint keeps it."""
    if jnp.ndim(value):
        raise ValueError(f"metric {keystr(path)} of the loss has shape {value.shape}: it must be a scalar")
    return jnp.asarray(value, jnp.float32)


def _gradient(experiment: Experiment, accumulate: int) -> Callable[..., tuple[Params, Metrics]]:
    """The gradient and the metrics of a batch; means over `accumulate` equal parts of it, one after the other."""
    gradient_of = jax.grad(experiment.loss, has_aux=True)
    if accumulate == 1:
        return gradient_of

    def accumulated(params: Params, batch: Batch, key: jax.Array, progress: jax.Array) -> tuple[Params, Metrics]:
        def part(array: jax.Array) -> jax.Array:
            # Every A-th example, so that every device has its share of each part without moving any.
            size = array.shape[0] // accumulate
            return array.reshape(size, accumulate, *array.shape[1:]).swapaxes(0, 1)

        def add(total: Any, at: tuple[jax.Array, Batch]) -> tuple[Any, None]:
            number, microbatch = at
            new = gradient_of(params, microbatch, jax.random.fold_in(key, number), progress)
            return jax.tree.map(jnp.add, total, new), None

        parts = jax.tree.map(part, batch)
        shapes = jax.eval_shape(gradient_of, params, jax.tree.map(lambda array: array[0], parts), key, progress)
        zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
        total, _ = jax.lax.scan(add, zeros, (jnp.arange(accumulate, dtype=jnp.int32), parts))
        return jax.tree.map(lambda array: array / accumulate, total)

    return accumulated
