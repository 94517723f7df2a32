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

To add one: a function that makes it of k, p, lam, target and weights, and an entry of LOSSES.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from etils import epy

from experiments.core.kinds import Kinds
from experiments.core.report.markdown import p_name
from experiments.core.report.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, Look

with epy.lazy_imports():  # --help does without them
    import jax
    import jax.numpy as jnp
    import optax

    import ops
    from experiments.vision import losses as others
    from ops import losses as ops_losses
    from ops.interface import arguments

Loss: TypeAlias = "Callable[[jax.Array, jax.Array], jax.Array]"
Fields = Mapping[str, Any]  # `config.loss` of a run


@dataclasses.dataclass(frozen=True)
class LossKind:
    """A loss, as `LOSSES` lists it: all there is to be said of it."""

    make: Callable[..., Loss]  # of k, p, lam, target and weights, which have been checked
    label: Callable[[Fields], str]  # in tables and figures
    look: Callable[[Fields], Look]  # in figures
    reads: Sequence[str] = ("k", "p", "lam", "target", "weights")  # of `config.loss`, besides its name
    learning_rate: float = 5e-3  # the config's
    everywhere: bool = True  # whether all suites have it; False: that on features of a frozen network alone
    on_features: Mapping[str, Fields] = dataclasses.field(default_factory=dict)  # forms that this suite has besides
    forms: Mapping[str, Fields] = dataclasses.field(default_factory=dict)  # in the suites; none: one of its own name
    demo: Sequence[str] | None = None  # the forms that the demo trains; None: all
    lams: Sequence[float] = ()  # tried with each learning rate; none: that of the config
    temperatures: Sequence[float] = ()  # the same on features, where lam is more than a scale of the rate
    of_labels: bool = False  # whether it is defined for a single label of each example alone


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    if labels.shape == logits.shape:
        return optax.softmax_cross_entropy(logits, labels.astype(logits.dtype))
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


SMOOTHING = 0.1  # of xent_smoothed: the share of the target that all classes have in common


def _smoothed_cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    targets = labels if labels.shape == logits.shape else jax.nn.one_hot(labels, logits.shape[-1])
    targets = targets.astype(logits.dtype)
    share = targets.sum(axis=-1, keepdims=True) / logits.shape[-1]
    return optax.softmax_cross_entropy(logits, (1.0 - SMOOTHING) * targets + SMOOTHING * share)


def _of_labels(loss: Loss) -> Loss:
    """The loss, which refuses one value per class."""

    def checked(logits: jax.Array, labels: jax.Array) -> jax.Array:
        if labels.shape != logits.shape[:-1]:
            raise ValueError(f"this loss is one of integer labels {logits.shape[:-1]}, got labels {labels.shape}")
        return loss(logits, jnp.asarray(labels))

    return checked


def _surrogate(k: int, p: float, lam: float, **unused: Any) -> Loss:
    del unused
    return lambda logits, labels: ops.topk_surrogate_loss(logits, labels, k, lam=lam, p=p)


def _sorted(k: int, lam: float, weights: Sequence[float] | None, **unused: Any) -> Loss:
    """Half for top-1 and half for top-k, if there are no weights."""
    del unused
    mixed = 0.5 * (np.eye(k)[0] + np.eye(k)[-1]) if weights is None else np.asarray(weights, float)
    return lambda logits, labels: others.sorted_cross_entropy(logits, labels, mixed, lam)


def _topk(k: int, weights: Any, **options: Any) -> Loss:
    del weights
    return lambda logits, labels: ops.topk_fenchel_young_loss(logits, labels, k=k, **options)


def _mixture(k: int, weights: Sequence[float] | None, **options: Any) -> Loss:
    mixed = np.full(k, 1 / k) if weights is None else np.asarray(weights, float)
    return lambda logits, labels: ops.topk_fenchel_young_mixture(logits, labels, weights=mixed, **options)


def _form(fields: Fields) -> str:
    if fields["k"] == 1:
        return f"p = {p_name(fields['p'])}"
    target = "the paper's" if fields["target"] == "one_hot" else "smooth target"
    return f"p = {p_name(fields['p'])}, {target}"


def _topk_look(fields: Fields) -> Look:
    """Colour by p; dashed is the target as in the paper, dotted a top-1 loss, where both targets are the same."""
    colour = RED if fields["p"] == 2.0 else GREEN if abs(fields["p"] - 4 / 3) < 1e-9 else ORANGE
    return colour, ":" if fields["k"] == 1 else "--" if fields["target"] == "one_hot" else "-"


# In the order of the tables.
LOSSES = {
    "xent": LossKind(
        lambda **options: _cross_entropy,
        lambda fields: "cross-entropy",
        lambda fields: (BLUE, "-"),
        reads=(),
        learning_rate=3e-3,
    ),
    "topk": LossKind(
        _topk,
        lambda fields: f"top-{fields['k']}, {_form(fields)}",
        _topk_look,
        forms={
            "topk-p2": {"loss.p": 2.0, "loss.target": "one_hot"},
            "topk-p4_3": {"loss.p": 4 / 3, "loss.target": "one_hot"},
            "topk-p2-smooth": {"loss.p": 2.0, "loss.target": "smooth"},
            "topk-p4_3-smooth": {"loss.p": 4 / 3, "loss.target": "smooth"},
        },
        demo=("topk-p2", "topk-p2-smooth", "topk-p4_3-smooth"),
        lams=(0.03, 0.1, 1.0, 10.0),
        on_features={
            "top1-p2": {"loss.p": 2.0, "loss.target": "one_hot", "loss.k": 1},
            "top1-p4_3": {"loss.p": 4 / 3, "loss.target": "one_hot", "loss.k": 1},
        },
    ),
    "topk_mixture": LossKind(
        _mixture,
        lambda fields: f"mixture of top-1 to top-{fields['k']}, {_form(fields)}",
        lambda fields: (PURPLE, "-" if fields["p"] == 2.0 else "--"),
        forms={"mixture-p2": {"loss.p": 2.0, "loss.target": "smooth", "loss.k": 5}},
        demo=(),
        lams=(0.1, 1.0, 10.0),
        on_features={"mixture-p4_3": {"loss.p": 4 / 3, "loss.target": "smooth", "loss.k": 5}},
    ),
    "topk_surrogate": LossKind(
        _surrogate,
        lambda fields: f"top-{fields['k']} surrogate, p = {p_name(fields['p'])}",
        lambda fields: (BLACK, "-"),
        reads=("k", "p", "lam"),
        everywhere=False,
        forms={"surrogate-k5-p2": {"loss.p": 2.0, "loss.k": 5}},
        of_labels=True,
    ),
    "xent_smoothed": LossKind(
        lambda **options: _smoothed_cross_entropy,
        lambda fields: f"cross-entropy, {SMOOTHING:g} of the target spread",
        lambda fields: (BLUE, "--"),
        reads=(),
        learning_rate=3e-3,
        everywhere=False,
    ),
    "truncated_entropy": LossKind(
        lambda k, **options: lambda logits, labels: others.truncated_entropy(logits, labels, k),
        lambda fields: f"truncated top-{fields['k']} entropy",
        lambda fields: (GREY, "-"),
        reads=("k",),
        learning_rate=3e-3,
        everywhere=False,
        forms={"truncated-entropy": {"loss.k": 5}},
        of_labels=True,
    ),
    "smooth_svm": LossKind(
        lambda k, lam, **options: lambda logits, labels: others.smooth_svm(logits, labels, k, lam),
        lambda fields: f"smooth top-{fields['k']} SVM",
        lambda fields: (GREY, "--"),
        reads=("k", "lam"),
        everywhere=False,
        temperatures=(0.01, 0.1, 1.0, 10.0),
        forms={"smooth-svm": {"loss.k": 5}},
        of_labels=True,
    ),
    "sorted_xent": LossKind(
        _sorted,
        lambda fields: f"sorted cross-entropy, top-1 and top-{fields['k']}",
        lambda fields: (GREY, ":"),
        reads=("k", "lam", "weights"),
        everywhere=False,
        temperatures=(0.1, 1.0, 10.0),
        forms={"sorted-xent": {"loss.k": 5}},
        of_labels=True,
    ),
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
    target: ops_losses.Target = "one_hot",
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
      `loss(logits, labels)`, one value [B] per example, of logits [B, n] and either integer labels [B] or, unless the
      entry says `of_labels`, one value per class [B, n]. It is computed and returned in float32 at least, whatever the
      type of the logits.

    Raises:
      ValueError: an argument is out of range; the message names it and its value.
    """
    arguments.check_choice("name", name, tuple(LOSSES))
    arguments.check_choice("target", target, ops_losses.TARGETS)
    p = arguments.check_p(p)
    arguments.check_range("k", k, 1, np.inf, "at least 1")
    arguments.check_range("lam", lam, 0, float(np.finfo(np.float32).max), "finite and >= 0")
    if np.isnan(lam):  # operators let it pass
        raise ValueError(f"lam must be finite and >= 0, got {lam}")
    if name in ("smooth_svm", "sorted_xent") and lam == 0:
        raise ValueError(f"lam, the temperature of {name}, must be positive, got {lam}")
    if weights is not None and len(weights) != k:
        raise ValueError(f"weights must be one for each of 1, ..., k = {k}, got {len(weights)}")
    loss = LOSSES[name].make(k=k, p=p, lam=lam, target=target, weights=weights)
    loss = _of_labels(loss) if LOSSES[name].of_labels else loss

    def in_float32(logits: jax.Array, labels: jax.Array) -> jax.Array:
        return loss(logits.astype(np.promote_types(logits.dtype, np.float32)), labels)

    return in_float32
