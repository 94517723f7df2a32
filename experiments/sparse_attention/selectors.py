"""Selectors: which keys a query reads in training, and how the scores learn.

A selector turns the scores of an indexer into a `Selection`. At test all read the k keys with the largest scores. `B`
examples, `L` queries and as many keys, `M` slots of a query.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from experiments.core.kinds import Kinds
from ops import hard_topk_mask, lam_of_support, soft_topk, straight_through, topk_mask
from ops.baselines import lapsum_topk_mask, sigmoid_topk_mask


class Selection(NamedTuple):
    """What each query reads.

    Attributes:
      weights: [B, L, M], in front of the exponentials of attention: 1 for a key that is read, 0 for one that is not.
      keys: [B, L, M] int32, the key in each slot; None: all keys in order, M being L.
    """

    weights: Array
    keys: Array | None


class Scores(NamedTuple):
    """What a selector chooses from.

    Attributes:
      values: [B, L, L], by query and key.
      allowed: boolean [1, L, L]: a query reads no later key.
      k: how many keys a query is to read.
      slots: M, of the selectors that have slots.
      lam: their strength; by selector a temperature, a number of keys beyond k, or a factor of the scores.
      progress: of training, in [0, 1).
    """

    values: Array
    allowed: Array
    k: int
    slots: int
    lam: Array
    progress: Array


def _largest(scores: Scores, count: int) -> tuple[Array, Array]:
    """Returns the largest scores of each query and their keys; -inf where no more keys are allowed."""
    values, keys = jax.lax.top_k(jnp.where(scores.allowed, scores.values, -jnp.inf), count)
    return values, keys


def hard(scores: Scores, slots: int | None = None) -> Selection:
    """Selects the k keys with the largest scores, all of them if there are fewer; no gradient."""
    values, keys = _largest(scores, scores.k if slots is None else slots)
    is_one = (values > -jnp.inf) & (jnp.arange(keys.shape[-1]) < scores.k)[None, None]
    return Selection(is_one.astype(values.dtype), keys)


def _hard_mask(scores: Scores) -> Array:
    """Returns the mask of the same keys, over all keys in order."""
    return hard_topk_mask(scores.values, scores.k, where=scores.allowed)


def everything(scores: Scores) -> Selection:
    """Selects all keys."""
    return Selection(jnp.broadcast_to(scores.allowed, scores.values.shape).astype(scores.values.dtype), None)


def _hard_then(soft: Callable[[Scores], Selection]) -> Callable[[Scores], Selection]:
    """Returns the selector with the values of the hard mask and the derivatives of a relaxed one."""

    def select(scores: Scores) -> Selection:
        relaxed = soft(scores)
        # The slots are in the same order.
        mask = _hard_mask(scores) if relaxed.keys is None else hard(scores, slots=scores.slots).weights
        return Selection(straight_through(mask, relaxed.weights), relaxed.keys)

    return select


def _relaxed_slots(scores: Scores) -> Selection:
    weights, keys, _ = soft_topk(scores.values, scores.k, num_slots=scores.slots, lam=scores.lam, where=scores.allowed)
    return Selection(weights, keys)


def _relaxed(scores: Scores) -> Selection:
    return Selection(topk_mask(scores.values, scores.k, lam=scores.lam, where=scores.allowed), None)


def _of_support(scores: Scores) -> Selection:
    """Relaxes as far as k keys and `lam` more have a weight that is not zero."""
    values, allowed = scores.values, scores.allowed
    # A query at the beginning has fewer keys.
    k = jnp.minimum(scores.k, allowed.sum(axis=-1)).astype(jnp.float32)
    support = jnp.clip(jnp.round(k + scores.lam), k, allowed.sum(axis=-1).astype(jnp.float32))
    lam = lam_of_support(jax.lax.stop_gradient(values), k, support, where=allowed)
    weights, keys, _ = soft_topk(values, k, num_slots=scores.slots, lam=jnp.clip(lam, 1e-3, 1e3), where=allowed)
    return Selection(weights, keys)


def _best_of_sigmoid(scores: Scores) -> Selection:
    """Gives the best keys, those in the slots, weights of a sigmoid whose threshold, between keys k and k + 1, is held.

    So no other key has a gradient, as with the relaxed mask; none has one if all are read.
    """
    values, keys = _largest(scores, max(scores.slots, scores.k + 1))
    last, first_left = values[..., scores.k - 1, None], values[..., scores.k, None]
    any_left = first_left > -jnp.inf
    threshold = jax.lax.stop_gradient(jnp.where(any_left, 0.5 * (last + first_left), 0.0))
    is_key = values > -jnp.inf
    relaxed = jax.nn.sigmoid((jnp.where(is_key, values, threshold) - threshold) / scores.lam)
    weights = jnp.where(is_key & any_left, relaxed, is_key.astype(values.dtype))
    return Selection(weights[..., : scores.slots], keys[..., : scores.slots])


def _best(scores: Scores) -> Selection:
    """Gives the best keys, those in the slots, their scores as weights: a gradient of one for each."""
    values, keys = _largest(scores, scores.slots)
    return Selection(jnp.where(values > -jnp.inf, values, 0.0), keys)


def _by_threshold(relax: Callable[..., Array]) -> Callable[[Scores], Selection]:
    """Returns the selector of a mask of `ops.baselines`, which needs k below the number of keys."""

    def select(scores: Scores) -> Selection:
        count = scores.allowed.sum(axis=-1, keepdims=True).astype(jnp.float32)
        few = count <= scores.k  # all of them are read
        k = jnp.where(few, 0.5 * count, scores.k)[..., 0]
        mask = relax(scores.values, k, lam=scores.lam, where=scores.allowed)
        return Selection(jnp.where(few, scores.allowed.astype(mask.dtype), mask), None)

    return select


def _then_sparse(scores: Scores) -> Selection:
    """Reads all keys in the first half of training, then k."""
    return Selection(jnp.where(scores.progress < 0.5, everything(scores).weights, _hard_mask(scores)), None)


class Selector(NamedTuple):
    """A way to train an indexer.

    Attributes:
      select: what is read in training.
      taught: whether scores learn to be the attention over what is read, by a second loss (KL), and by it alone.
      added: whether the scores are added to the logits of attention, through which they get a gradient.
      of_keys: whether a key has one score, whatever the query, as in SparseK attention.
    """

    select: Callable[[Scores], Selection]
    taught: bool = False
    added: bool = False
    of_keys: bool = False


SELECTORS = {
    "dense": Selector(everything),
    "longer": Selector(everything),  # the same, trained on for as long as the others
    "straight_through": Selector(_hard_then(_relaxed_slots)),
    "sigmoid": Selector(_hard_then(_by_threshold(sigmoid_topk_mask))),
    "best_sigmoid": Selector(_hard_then(_best_of_sigmoid)),
    "best": Selector(_hard_then(_best)),
    "kl": Selector(everything, taught=True),  # as the warm-up of DeepSeek-V3.2's indexer
    "kl_sparse": Selector(_then_sparse, taught=True),  # and its second stage
    "support": Selector(_of_support),
    "relaxed": Selector(_relaxed),
    "lapsum": Selector(_by_threshold(lapsum_topk_mask)),
    "sparsek": Selector(_relaxed, of_keys=True),  # Lou et al., 2024: this operator with p = 2 and lam = 1
    "added": Selector(hard, added=True),
    "frozen": Selector(hard),
}

_K, _LAM, _SPARE = ("selector.k", "pretrained", "trained"), ("selector.lam",), ("selector.spare",)
_TAUGHT = (*_K, *_LAM, "selector.weight")
KINDS = Kinds(
    "selector.name",
    reads={
        "dense": ("pretrained",),
        "longer": ("pretrained",),
        "straight_through": (*_K, *_LAM, *_SPARE),
        "sigmoid": (*_K, *_LAM),
        "best_sigmoid": (*_K, *_LAM, *_SPARE),
        "best": (*_K, *_SPARE),
        "kl": _TAUGHT,
        "kl_sparse": _TAUGHT,
        "support": (*_K, *_LAM, *_SPARE),
        "relaxed": (*_K, *_LAM),
        "lapsum": (*_K, *_LAM),
        "sparsek": (*_K, *_LAM),
        "added": (*_K, *_LAM),
        "frozen": _K,
    },
    only_if={"selector.lam.end": ("selector.lam.schedule", ["geometric"])},
    options={"selector.name": "selector", "task.name": "task"},
)
