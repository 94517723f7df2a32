"""Movement pruning (Sanh, Wolf and Rush 2020)."""

import jax
import jax.numpy as jnp
import ml_collections
import optax

import ops
from experiments.mnist_pruning.methods.method import Method, PruningMethod, State
from experiments.mnist_pruning.methods.schedules import FALLING, kept


def _make(config: ml_collections.ConfigDict, total_steps: int) -> Method:
    """Keeps the weights with the largest scores; scores are trained through the mask as if it were the identity.

    The gradient of a score is that of the masked weight times the weight. So the score of a weight that moves away from
    0 rises, even while it is masked. The cubic schedule of the density is the paper's. Differs from the paper: scores
    train by gradient descent instead of Adam. They start at 0, so their constant learning rate changes no mask and need
    not be tuned.
    """

    def init(w: jax.Array, key: jax.Array) -> State:
        return {"scores": jnp.zeros_like(w)}

    def weights(w: jax.Array, state: State, progress: jax.Array, key: jax.Array | None) -> jax.Array:
        scores = state["scores"]
        mask = ops.hard_topk_mask(scores, kept(config, w.size)(progress))
        return w * ops.straight_through(mask, scores)

    return Method(weights, init=init, optimizers={"scores": optax.sgd(1.0)})


MOVEMENT = PruningMethod(_make, reads=FALLING, density_schedules=("cubic",))
