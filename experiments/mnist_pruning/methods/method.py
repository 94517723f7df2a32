"""The interface of pruning methods: functions of weights for training, and the fields of the config that these read.

The weights of a pool (`pools.py`) are a vector of size n, of which `k = int(density * n)` are kept.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import optax

from experiments.mnist_pruning.methods.schedules import kept

State = dict[str, jax.Array]  # what a method keeps for one vector besides the weights; often empty


@dataclasses.dataclass(frozen=True)
class Method:
    """A pruning method, as functions of one vector.

    Attributes:
      weights: `weights(vector, state, progress, key) -> vector` of the forward pass in training;
        with `key=None` its deterministic form, for evaluation.
      init: `init(vector, key) -> state`.
      penalty: `penalty(vector, state, progress) -> scalar`, added to the loss.
      after_update: `after_update(vector, state, gradient, progress) -> vector, state`, applied after each update, with
        the gradient of the vector.
      active: `active(state) -> mask`: 1 where the optimizer keeps its memory (momentum) of a weight after an update, 0
        where it forgets. None: it keeps all.
      optimizers: the optimizers of the entries of the state, by name.
    """

    weights: Callable[[jax.Array, State, jax.Array, jax.Array | None], jax.Array]
    init: Callable[[jax.Array, jax.Array], State] = lambda vector, key: {}
    penalty: Callable[[jax.Array, State, jax.Array], jax.Array | float] = lambda vector, state, progress: 0.0
    after_update: Callable[[jax.Array, State, jax.Array, jax.Array], tuple[jax.Array, State]] = (
        lambda vector, state, gradient, progress: (vector, state)
    )
    active: Callable[[State], jax.Array] | None = None
    optimizers: dict[str, optax.GradientTransformation] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class PruningMethod:
    """An entry of `METHODS`.

    Attributes:
      make: makes the method, given a config and the number of steps.
      reads: which fields the method reads among those that not all methods read; `lam` stands for all of `lam.*`.
      validate: checks the fields of the method.
      density_schedules: the values of `config.density_schedule.name` that it can follow; its variant has the first.
      keeps_all: whether the density may be 1.
    """

    make: Callable[[ml_collections.ConfigDict, int], Method]
    reads: Sequence[str] = ()
    validate: Callable[[ml_collections.ConfigDict], None] = lambda config: None
    density_schedules: Sequence[str] = ("constant",)
    keeps_all: bool = True


def by_number(function: Callable[[jax.Array, Any], jax.Array], config: ml_collections.ConfigDict) -> Method:
    """Returns the method with the weights `function(vector, k)` and no state."""
    return Method(lambda vector, state, progress, key: function(vector, kept(config, vector.size)(progress)))


def by_mask(
    weights: Callable[[jax.Array, jax.Array], jax.Array],
    first: Callable[[jax.Array, jax.Array], jax.Array],
    after_update: Callable[[jax.Array, jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array]],
) -> Method:
    """Returns a method that holds a mask, which is not trained; the optimizer forgets its memory of masked weights.

    Args:
      weights: `weights(vector, mask) -> vector` of the forward pass.
      first: `first(vector, key) -> mask` at the start.
      after_update: `after_update(vector, mask, gradient, progress) -> vector, mask`.
    """

    def follow_up(w: jax.Array, state: State, gradient: jax.Array, progress: jax.Array) -> tuple[jax.Array, State]:
        w, mask = after_update(w, state["mask"], gradient, progress)
        return w, {"mask": mask}

    return Method(
        lambda vector, state, progress, key: weights(vector, state["mask"]),
        init=lambda vector, key: {"mask": first(vector, key)},
        after_update=follow_up,
        active=lambda state: state["mask"],
        optimizers={"mask": optax.set_to_zero()},
    )


def over_rows(method: Method) -> Method:
    """Returns the method for a matrix, each row of which it prunes as a vector."""

    def weights(rows: jax.Array, state: State, progress: jax.Array, key: jax.Array | None) -> jax.Array:
        if key is None:
            return jax.vmap(lambda w, s: method.weights(w, s, progress, None))(rows, state)
        keys = jax.random.split(key, len(rows))
        return jax.vmap(lambda w, s, key: method.weights(w, s, progress, key))(rows, state, keys)

    def penalty(rows: jax.Array, state: State, progress: jax.Array) -> jax.Array:
        return jnp.sum(jax.vmap(lambda w, s: jnp.asarray(method.penalty(w, s, progress)))(rows, state))

    return dataclasses.replace(
        method,
        weights=weights,
        init=lambda rows, key: jax.vmap(method.init)(rows, jax.random.split(key, len(rows))),
        penalty=penalty,
        after_update=jax.vmap(method.after_update, in_axes=(0, 0, 0, None)),
    )
