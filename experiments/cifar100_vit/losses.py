"""The losses that are compared in fine-tuning: cross-entropy, the top-k loss of the paper, and others for top-k.

Per example, with logits `x` of `n` classes, a one-hot target `t` and `f_R` of Proposition 2:

    xent           -<t, log softmax(x)>
    topk           f_R(x, 1_k) + R(t) - <x, t>                       target="one_hot", the paper's
                   f_R(x, 1_k) + R(t') - <x, t'>                     target="smooth"
                   with t' = t + (k - 1) / (n - 1) (1 - t)
    topk_mixture   sum_j weights_j topk_j, j = 1, ..., K
    topk_surrogate f_R(x, 1_k) - max {<x, y> - R(y) : y in the polytope, 1 at the label}     `ops.topk_surrogate_loss`

and, for those that others have proposed for top-k classification (`experiments/vision/losses.py`), with `lam` for the
temperature where there is one,

    xent_smoothed, truncated_entropy, smooth_svm, sorted_xent

`R(t) = lam / p |t|^p` is a constant of the logits, `lam / p` for one label, which the paper leaves out. Of `topk`, the
first form has no lower bound for `k > 1`: mask and target differ in their sum, so a common shift takes all logits down
and the loss with them. The second is a Fenchel-Young loss proper. See `ops.topk_fenchel_young_loss`.

To add one: an entry of LOSSES here, its name and look in `report.py`, and where it is tried in `suite.py`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
import optax

import ops
from experiments.core.kinds import Kinds
from experiments.vision import losses as others
from ops.interface import arguments
from ops.losses import TARGETS, Target

Loss: TypeAlias = Callable[[jax.Array, jax.Array], jax.Array]

SMOOTHING = 0.1  # of xent_smoothed: the share of the target that all classes have in common


class LossKind(NamedTuple):
    """A loss, as LOSSES lists it.

    Attributes:
      make: returns the loss, of k, p, lam, target and weights, which have been checked.
      reads: the fields of `config.loss` that it has a use for, besides its name.
      single_label: whether it is defined only for examples of one class each.
    """

    make: Callable[..., Loss]
    reads: Sequence[str] = ("k", "p", "lam", "target", "weights")
    single_label: bool = False


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    if labels.shape == logits.shape:
        return optax.softmax_cross_entropy(logits, labels.astype(logits.dtype))
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def _smoothed_cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    targets = labels if labels.shape == logits.shape else jax.nn.one_hot(labels, logits.shape[-1])
    targets = targets.astype(logits.dtype)
    share = targets.sum(axis=-1, keepdims=True) / logits.shape[-1]
    return optax.softmax_cross_entropy(logits, (1.0 - SMOOTHING) * targets + SMOOTHING * share)


def _topk(k: int, weights: Any, **options: Any) -> Loss:
    del weights
    return lambda logits, labels: ops.topk_fenchel_young_loss(logits, labels, k=k, **options)


def _mixture(k: int, weights: Sequence[float] | None, **options: Any) -> Loss:
    mixed = np.full(k, 1 / k) if weights is None else np.asarray(weights, float)
    return lambda logits, labels: ops.topk_fenchel_young_mixture(logits, labels, weights=mixed, **options)


def _surrogate(k: int, p: float, lam: float, **unused: Any) -> Loss:
    del unused
    return lambda logits, labels: ops.topk_surrogate_loss(logits, labels, k, lam=lam, p=p)


def _sorted(k: int, lam: float, weights: Sequence[float] | None, **unused: Any) -> Loss:
    """Gives half of the weight to top-1 and half to top-k, if there are no weights."""
    del unused
    mixed = 0.5 * (np.eye(k)[0] + np.eye(k)[-1]) if weights is None else np.asarray(weights, float)
    return lambda logits, labels: others.sorted_cross_entropy(logits, labels, mixed, lam)


def _truncated(k: int, **unused: Any) -> Loss:
    del unused
    return lambda logits, labels: others.truncated_entropy(logits, labels, k)


def _svm(k: int, lam: float, **unused: Any) -> Loss:
    del unused
    return lambda logits, labels: others.smooth_svm(logits, labels, k, lam)


# The order of the tables.
LOSSES = {
    "xent": LossKind(lambda **unused: _cross_entropy, reads=()),
    "topk": LossKind(_topk),
    "topk_mixture": LossKind(_mixture),
    "topk_surrogate": LossKind(_surrogate, reads=("k", "p", "lam"), single_label=True),
    "xent_smoothed": LossKind(lambda **unused: _smoothed_cross_entropy, reads=()),
    "truncated_entropy": LossKind(_truncated, reads=("k",), single_label=True),
    "smooth_svm": LossKind(_svm, reads=("k", "lam"), single_label=True),
    "sorted_xent": LossKind(_sorted, reads=("k", "lam", "weights"), single_label=True),
}
KINDS = Kinds(
    "loss.name",
    reads={name: [f"loss.{field}" for field in kind.reads] for name, kind in LOSSES.items()},
    options={"loss.name": "loss"},
)


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
      weights: for `topk_mixture`: non-negative, one for each of 1, ..., k. None: 1 / k each.

    Returns:
      `loss(logits, labels)`, one value [B] per example, of logits [B, n] and either integer labels [B] or, unless the
      entry says `single_label`, one value per class [B, n]. It is computed and returned in float32 at least, whatever
      the type of the logits.

    Raises:
      ValueError: an argument is out of range; the message names it and its value.
    """
    arguments.check_choice("name", name, tuple(LOSSES))
    arguments.check_choice("target", target, TARGETS)
    p = arguments.check_p(p)
    arguments.check_values("k", k, arguments.Range("at least 1", 1))
    arguments.check_values("lam", lam, arguments.NON_NEGATIVE)
    if np.isnan(lam):  # operators let it pass
        raise ValueError(f"lam must be finite and >= 0, got {lam}")
    if name in ("smooth_svm", "sorted_xent") and lam == 0:
        raise ValueError(f"lam, the temperature of {name}, must be positive, got {lam}")
    if weights is not None and len(weights) != k:
        raise ValueError(f"weights must be one for each of 1, ..., k = {k}, got {len(weights)}")
    kind = LOSSES[name]
    loss = kind.make(k=k, p=p, lam=lam, target=target, weights=weights)

    def in_float32(logits: jax.Array, labels: jax.Array) -> jax.Array:
        if kind.single_label and labels.shape != logits.shape[:-1]:
            raise ValueError(f"this loss is one of integer labels {logits.shape[:-1]}, got labels {labels.shape}")
        return loss(logits.astype(np.promote_types(logits.dtype, np.float32)), labels)

    return in_float32
