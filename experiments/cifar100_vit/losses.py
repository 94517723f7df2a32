"""The losses that are compared in fine-tuning: cross-entropy, the top-k loss of the paper, and others for top-k.

Per example, with logits `x` of `n` classes, a one-hot target `t` and `f_R` of Proposition 2:

    xent           -<t, log softmax(x)>
    xent_temperature   lam times xent of x / lam: the Fenchel-Young loss of lam times the entropy
    topk           f_R(x, 1_k) + R(t) - <x, t>                       target="one_hot", the paper's
                   f_R(x, 1_k) + R(t') - <x, t'>                     target="smooth"
                   with t' = t + (k - 1) / (n - 1) (1 - t)
    topk_mixture   the mean of topk for 1, ..., k
    topk_surrogate f_R(x, 1_k) - max {<x, y> - R(y) : y in the polytope, 1 at the label}     `ops.topk_surrogate_loss`

and the losses that others have proposed for top-k classification (`experiments/vision/losses.py`), with `lam` for the
temperature if there is one:

    xent_smoothed, truncated_entropy, smooth_svm, sorted_xent

`R(t) = lam / p |t|^p` does not depend on the logits; it is `lam / p` for one label, and the paper leaves it out. The
first form of `topk` has no lower bound for `k > 1`: the sums of mask and target differ, so lowering all logits alike
lowers the loss. The second form is a Fenchel-Young loss. See `ops.topk_fenchel_young_loss`.

To add one: an entry of LOSSES here; `report.py` may give it another name and a look, and `suite.py` says where it is
tried.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

import ops
from experiments.core.kinds import Kinds
from experiments.vision import losses as others
from ops import interface
from ops.losses import TARGETS, Target

WITH_TEMPERATURE = ("xent_temperature", "smooth_svm", "sorted_xent")  # losses whose lam is one
SMOOTHING = 0.1  # the share of the target that xent_smoothed spreads over all classes


class LossKind(NamedTuple):
    """An entry of LOSSES.

    Attributes:
      loss: takes logits, labels, and by name the fields that it reads.
      reads: the fields of `config.loss` that it reads, besides its name.
      single_label: whether every example must have exactly one class.
    """

    loss: Callable[..., jax.Array]
    reads: Sequence[str] = ("k", "p", "lam", "target")
    single_label: bool = False


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    if labels.shape == logits.shape:
        return optax.softmax_cross_entropy(logits, labels.astype(logits.dtype))
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def _cross_entropy_with_temperature(logits: jax.Array, labels: jax.Array, lam: jax.Array | float) -> jax.Array:
    return lam * _cross_entropy(logits / lam, labels)


def _smoothed_cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    targets = labels if labels.shape == logits.shape else jax.nn.one_hot(labels, logits.shape[-1])
    targets = targets.astype(logits.dtype)
    share = targets.sum(axis=-1, keepdims=True) / logits.shape[-1]
    return optax.softmax_cross_entropy(logits, (1.0 - SMOOTHING) * targets + SMOOTHING * share)


def _mixture(logits: jax.Array, labels: jax.Array, k: int, **options: Any) -> jax.Array:
    return ops.topk_fenchel_young_mixture(logits, labels, weights=np.full(k, 1 / k), **options)


# The order of the tables.
LOSSES = {
    "xent": LossKind(_cross_entropy, reads=()),
    "xent_temperature": LossKind(_cross_entropy_with_temperature, reads=("lam",)),
    "topk": LossKind(ops.topk_fenchel_young_loss),
    "topk_mixture": LossKind(_mixture),
    "topk_surrogate": LossKind(ops.topk_surrogate_loss, reads=("k", "p", "lam"), single_label=True),
    "xent_smoothed": LossKind(_smoothed_cross_entropy, reads=()),
    "truncated_entropy": LossKind(others.truncated_entropy, reads=("k",), single_label=True),
    "smooth_svm": LossKind(
        lambda logits, labels, k, lam: others.smooth_svm(logits, labels, k, temperature=lam),
        reads=("k", "lam"),
        single_label=True,
    ),
    "sorted_xent": LossKind(
        lambda logits, labels, k, lam: others.sorted_cross_entropy(logits, labels, k, temperature=lam),
        reads=("k", "lam"),
        single_label=True,
    ),
}
KINDS = Kinds(
    "loss.name",
    reads={name: [f"loss.{field}" for field in kind.reads] for name, kind in LOSSES.items()},
    options={"loss.name": "loss"},
)


def fine_tuning_loss(
    name: str, k: int = 3, p: float = 2.0, lam: jax.Array | float = 0.1, target: Target = "one_hot"
) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Returns the loss with a name, as a function of logits and labels.

    Args:
      name: a name in LOSSES. `xent` does not use the other arguments, which are checked anyway.
      k: the number of classes that the mask selects, at least 1; for `topk_mixture` the largest of 1, ..., k.
      p: exponent of the regularisation, in (1, 2].
      lam: strength of the regularisation, >= 0 and finite, in the units of the logits.
      target: "one_hot" or "smooth".

    Returns:
      `loss(logits, labels)`: values [B] of logits [B, n] and integer labels [B] or, unless the entry says
      `single_label`, labels [B, n] with a value for each class. It is computed and returned in float32 at least.

    Raises:
      ValueError: an argument is out of range; the message names it and its value.
    """
    interface.check_choice("name", name, tuple(LOSSES))
    interface.check_choice("target", target, TARGETS)
    p = interface.check_p(p)
    interface.check_values("k", k, interface.Range("at least 1", 1))
    interface.check_values("lam", lam, interface.NON_NEGATIVE)
    if interface.known(lam):
        if np.isnan(lam):  # which operators accept
            raise ValueError(f"lam must be finite and >= 0, got {lam}")
        if name in WITH_TEMPERATURE and lam == 0:
            raise ValueError(f"lam, the temperature of {name}, must be positive, got {lam}")
    kind, fields = LOSSES[name], {"k": k, "p": p, "lam": lam, "target": target}
    read = {field: fields[field] for field in kind.reads}

    def in_float32(logits: jax.Array, labels: jax.Array) -> jax.Array:
        if kind.single_label and labels.shape != logits.shape[:-1]:
            raise ValueError(f"this loss is one of integer labels {logits.shape[:-1]}, got labels {labels.shape}")
        return kind.loss(logits.astype(np.promote_types(logits.dtype, np.float32)), labels, **read)

    return in_float32
