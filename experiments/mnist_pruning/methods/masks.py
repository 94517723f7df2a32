"""Relaxed top-k masks that give a hard top-k its gradient.

To add one: an operator `(x [n], k, *, lam) -> mask [n]`, and an entry of MASKS.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import ml_collections

import ops
from experiments.core.config import require, require_one_of
from experiments.mnist_pruning.methods.imle import imle_topk_mask
from experiments.mnist_pruning.methods.method import Method, PruningMethod, State
from experiments.mnist_pruning.methods.schedules import num_kept
from ops import baselines

Mask = Callable[[jax.Array, int, jax.Array], jax.Array]  # (magnitudes [n], k, key) -> mask [n]


@dataclasses.dataclass(frozen=True)
class RelaxedMask:
    """An entry of `MASKS`.

    Attributes:
      operator: an operator, whose `lam` `config.mask.strength` sets.
      draws: whether it is random, and takes a `key` and `num_samples`.
    """

    operator: Callable[..., jax.Array]
    draws: bool = False


MASKS = {
    "entropic_ot": RelaxedMask(baselines.entropic_ot_topk_mask),
    "perturbed": RelaxedMask(baselines.perturbed_topk_mask, draws=True),
    "imle": RelaxedMask(imle_topk_mask, draws=True),
    "sigmoid": RelaxedMask(baselines.sigmoid_topk_mask),
    "lapsum": RelaxedMask(baselines.lapsum_topk_mask),
    "softsort": RelaxedMask(baselines.softsort_topk_mask),
    "neuralsort": RelaxedMask(baselines.neuralsort_topk_mask),
    "dftopk": RelaxedMask(baselines.dftopk_mask),
    "relaxed_p2": RelaxedMask(functools.partial(ops.topk_mask, p=2.0)),
    "relaxed_p3_2": RelaxedMask(functools.partial(ops.topk_mask, p=1.5)),
    "relaxed_p4_3": RelaxedMask(functools.partial(ops.topk_mask, p=4 / 3)),
}


def mask_of(name: str, strength: float, num_samples: int = 1) -> Mask:
    """Returns the mask called `name` at a strength; a random one is the mean of `num_samples`."""
    entry = MASKS[name]
    if entry.draws:
        return lambda x, k, key: entry.operator(x, k, lam=strength, key=key, num_samples=num_samples)
    return lambda x, k, key: entry.operator(x, k, lam=strength)


def _behind_hard(mask: Mask, density: float) -> Method:
    """Returns the method with a hard top-k forward and the gradient of `w * mask(|w|)` backward."""

    def weights(w: jax.Array, state: State, progress: jax.Array, key: jax.Array | None) -> jax.Array:
        k = num_kept(density, w.size)
        hard = ops.hard_topk_mag(w, k)
        # Evaluation has no key and no gradient, so it leaves out the mask.
        return hard if key is None else ops.straight_through(hard, w * mask(jnp.abs(w), k, key))

    return Method(weights)


def _validate(config: ml_collections.ConfigDict) -> None:
    require_one_of("mask.name", config.mask.name, MASKS)
    for field in ("strength", "num_samples"):
        require(config.mask[field] > 0, f"mask.{field}", config.mask[field], "positive")


# Hard top-k forward, the gradient of the mask that `config.mask` names backward.
MASK_STRAIGHT_THROUGH = PruningMethod(
    lambda config, total_steps: _behind_hard(mask_of(**config.mask), config.density),
    reads=("mask",),
    validate=_validate,
    keeps_all=False,
)
# The same with entropic optimal transport (Cuturi et al. 2019).
OT_STRAIGHT_THROUGH = PruningMethod(
    lambda config, total_steps: _behind_hard(mask_of("entropic_ot", config.ot.epsilon), config.density),
    reads=("ot",),
    validate=lambda config: require(config.ot.epsilon > 0, "ot.epsilon", config.ot.epsilon, "positive"),
    keeps_all=False,
)
