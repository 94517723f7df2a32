"""The two compiled functions of a run: K training steps at once, and an evaluation.

Both carry all seeds along a leading axis by `vmap`: the small networks of several seeds make one
batched matrix product, and ten seeds cost three times what one does. `S` seeds, `K` steps, `B`
batch.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.core.experiment import Batch, Experiment, Params


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """All that training changes; every leaf has the leading axis S."""

    params: Params
    opt_state: optax.OptState
    diverged: jax.Array  # bool: some loss or parameter has not been finite


def init(experiment: Experiment, seeds: jax.Array) -> TrainState:
    """The state before the first step for `seeds` [S]."""

    def init_one(seed: jax.Array) -> TrainState:
        params = experiment.init(jax.random.fold_in(jax.random.key(seed), 0))
        return TrainState(params, experiment.optimizer.init(params), jnp.zeros((), bool))

    return jax.jit(jax.vmap(init_one))(seeds)


def make_train(experiment: Experiment, total_steps: int) -> Callable[..., tuple[TrainState, jax.Array]]:
    """`train(state, seeds [S], examples, indices [S, K, B], first_step) -> state, losses [S, K]`."""

    def train_one(
        state: TrainState, seed: jax.Array, examples: Batch, indices: jax.Array, first_step: jax.Array
    ) -> tuple[TrainState, jax.Array]:
        key = jax.random.key(seed)

        def step(state: TrainState, at: tuple[jax.Array, jax.Array]) -> tuple[TrainState, jax.Array]:
            number, rows = at
            batch = jax.tree.map(lambda array: array[rows], examples)
            progress = number.astype(jnp.float32) / total_steps
            gradient, loss = jax.grad(experiment.loss, has_aux=True)(
                state.params, batch, jax.random.fold_in(key, number + 1), progress
            )
            # Adam's bias correction in optax mixes types; everything else here holds to strict promotion.
            with jax.numpy_dtype_promotion("standard"):
                updates, opt_state = experiment.optimizer.update(gradient, state.opt_state, state.params)
            params = optax.apply_updates(state.params, updates)
            params = experiment.project(params, (number + 1).astype(jnp.float32) / total_steps)
            return TrainState(params, opt_state, state.diverged), loss

        steps = first_step + jnp.arange(indices.shape[0], dtype=jnp.int32)
        state, losses = jax.lax.scan(step, state, (steps, indices))
        leaves = [losses, *jax.tree.leaves(state.params)]
        finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in leaves]).all()
        return dataclasses.replace(state, diverged=state.diverged | ~finite), losses

    return jax.vmap(train_one, in_axes=(0, 0, None, 0, None))


def make_evaluate(experiment: Experiment) -> Callable[[Params, Batch, Any], Any]:
    """`evaluate(params, examples, progress) -> metrics`, each with the leading axis S."""
    return jax.vmap(experiment.evaluate, in_axes=(0, None, None))
