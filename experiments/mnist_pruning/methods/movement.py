"""Movement pruning (Sanh, Wolf and Rush 2020)."""

import jax
import jax.numpy as jnp
import ml_collections
import optax

import ops
from experiments.mnist_pruning.methods.method import Method, PruningMethod, State
from experiments.mnist_pruning.methods.schedules import FALLING, kept


def _make(config: ml_collections.ConfigDict, total_steps: int) -> Method:
    """Keeps the weights of the largest scores, which learn through the mask as if it were the identity.

    The gradient in a score is that in the masked weight times the weight, so the score of a weight that moves away from
    0 rises, also while it is masked. The cubic schedule of the density is that of the paper. Differs from it: scores
    learn by plain gradient descent instead of Adam. They begin at 0, so the size of their constant rate changes no
    mask, and there is nothing to tune.
    """
    del total_steps

    def init(w: jax.Array, key: jax.Array) -> State:
        del key
        return {"scores": jnp.zeros_like(w)}

    def weights(w: jax.Array, state: State, progress: jax.Array, key: jax.Array | None) -> jax.Array:
        del key
        scores = state["scores"]
        mask = ops.hard_topk_mask(scores, kept(config, w.size)(progress))
        return w * ops.straight_through(mask, scores)

    return Method(weights, init=init, optimizers={"scores": optax.sgd(1.0)})


MOVEMENT = PruningMethod(_make, reads=FALLING, density_schedules=("cubic",))
