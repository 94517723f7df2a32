"""STR: soft threshold weight reparameterization (Kusupati et al. 2020)."""

import jax
import jax.numpy as jnp
import ml_collections

from experiments.core.config import require
from experiments.core.training import optimizer
from experiments.mnist_pruning.methods.method import Method, PruningMethod, State


def _make(config: ml_collections.ConfigDict, total_steps: int) -> Method:
    """Takes `sign(w) relu(|w| - sigmoid(s))` for the weights; `s` is trained with them, by the same optimizer.

    Weight decay makes the weights sparse: it pulls `s`, which starts far below 0, up. Each budget has one `s`: each
    matrix as in the paper, or the whole network as in its global variant. The density follows from `str.weight_decay`;
    `config.density` is not read.
    """
    fields = config.str

    def init(w: jax.Array, key: jax.Array) -> State:
        return {"s": jnp.full((), fields.initial, w.dtype)}

    def weights(w: jax.Array, state: State, progress: jax.Array, key: jax.Array | None) -> jax.Array:
        return jnp.sign(w) * jax.nn.relu(jnp.abs(w) - jax.nn.sigmoid(state["s"]))

    def penalty(w: jax.Array, state: State, progress: jax.Array) -> jax.Array:
        return fields.weight_decay / 2 * (jnp.sum(jnp.square(w)) + jnp.square(state["s"]))

    return Method(weights, init=init, penalty=penalty, optimizers={"s": optimizer.make(config, total_steps)})


def _validate(config: ml_collections.ConfigDict) -> None:
    require(config.str.weight_decay >= 0, "str.weight_decay", config.str.weight_decay, "at least 0")


STR = PruningMethod(_make, reads=("str",), validate=_validate)
