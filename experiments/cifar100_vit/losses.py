"""The losses that are compared in fine-tuning: cross-entropy, the top-k loss of the paper, and its mixture over k.

Per example, with logits `x` of `n` classes, a one-hot target `t` and `f_R` of Proposition 2:

    xent           -<t, log softmax(x)>
    topk           f_R(x, 1_k) + R(t) - <x, t>                       target="one_hot", the paper's
                   f_R(x, 1_k) + R(t') - <x, t'>                     target="smooth"
                   with t' = t + (k - 1) / (n - 1) (1 - t)
    topk_mixture   sum_j weights_j topk_j, j = 1, ..., K

`R(t) = lam / p |t|^p` is a constant of the logits, `lam / p` for one label, which the paper leaves out. Of `topk`, the
first form has no lower bound for `k > 1`: mask and target differ in their sum, so a common shift takes all logits down
and the loss with them. The second is a Fenchel-Young loss proper. See `ops.topk_fenchel_young_loss`.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import numpy as np
import optax

import ops
from ops.interface.arguments import check_choice, check_p, check_range
from ops.losses import TARGETS, Target

LOSSES = ("xent", "topk", "topk_mixture")

Loss = Callable[[jax.Array, jax.Array], jax.Array]


def fine_tuning_loss(
    name: str,
    k: int = 3,
    p: float = 2.0,
    lam: float = 0.1,
    target: Target = "one_hot",
    weights: Sequence[float] | None = None,
) -> Loss:
    """The loss of that name, as a function of logits and labels.

    Args:
      name: one of LOSSES. `xent` has no use for the other arguments, which are checked all the same.
      k: how many classes the mask selects, at least 1; for `topk_mixture` the largest of 1, ..., k.
      p: exponent of the regularisation, in (1, 2].
      lam: strength of the regularisation, >= 0 and finite, in the units of the logits.
      target: "one_hot" or "smooth".
      weights: of `topk_mixture`: non-negative, one for each of 1, ..., k. None: 1 / k each.

    Returns:
      `loss(logits, labels)`, one value [B] per example, of logits [B, n] and either integer labels [B] or one value per
      class [B, n]. It is computed and returned in float32 at least, whatever the type of the logits.

    Raises:
      ValueError: an argument is out of range; the message names it and its value.
    """
    check_choice("name", name, LOSSES)
    check_choice("target", target, TARGETS)
    p = check_p(p)
    check_range("k", k, 1, np.inf, "at least 1")
    check_range("lam", lam, 0, float(np.finfo(np.float32).max), "finite and >= 0")
    if np.isnan(lam):  # operators let it pass
        raise ValueError(f"lam must be finite and >= 0, got {lam}")
    if weights is not None and len(weights) != k:
        raise ValueError(f"weights must be one for each of 1, ..., k = {k}, got {len(weights)}")
    if name == "topk":
        loss: Loss = functools.partial(ops.topk_fenchel_young_loss, k=k, lam=lam, p=p, target=target)
    elif name == "topk_mixture":
        mixed = np.full(k, 1 / k) if weights is None else np.asarray(weights, float)
        loss = functools.partial(ops.topk_fenchel_young_mixture, weights=mixed, lam=lam, p=p, target=target)
    else:
        loss = _cross_entropy

    def in_float32(logits: jax.Array, labels: jax.Array) -> jax.Array:
        return loss(logits.astype(np.promote_types(logits.dtype, np.float32)), labels)

    return in_float32


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    if labels.shape == logits.shape:
        return optax.softmax_cross_entropy(logits, labels.astype(logits.dtype))
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)
