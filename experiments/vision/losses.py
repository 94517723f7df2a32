"""Published losses for top-k classification: logits [B, n] and integer labels [B] to values [B].

Below, `x` are the logits of an example, `y` is its label, and `x_[1] >= x_[2] >= ...` are the other logits.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ops.baselines import softsort_topk_mask

# Replaces the logarithm of 0: its exponential is 0, and unlike -inf it has finite derivatives.
_LOG_OF_ZERO = -1e30


def truncated_entropy(logits: Array, labels: Array, k: int) -> Array:
    """`log(1 + sum_{j >= k} exp(x_[j] - x_y))`: cross-entropy without the k - 1 largest of the other classes.

    The truncated top-k entropy loss of Lapin, Hein and Schiele, "Loss Functions for Top-k Error" (CVPR 2016). It tends
    to 0 when the label is far ahead of all classes but k - 1. With k = 1 it is
    cross-entropy.
    """
    label, others = _label_and_others(logits, labels, -jnp.inf)
    left = -jnp.sort(-others, axis=-1)[:, k - 1 :]
    return jax.nn.logsumexp(jnp.concatenate([label, left], axis=-1), axis=-1) - label[:, 0]


def smooth_svm(logits: Array, labels: Array, k: int, temperature: Array | float) -> Array:
    """The smooth top-k SVM loss, with sums over sets S of k classes and t the `temperature`:

        t log sum_S exp(([y not in S] + mean_{j in S} x_j) / t) - t log sum_{S with y} exp(mean_{j in S} x_j / t).

    Berrada, Zisserman and Kumar, "Smooth Loss Functions for Deep Top-k Classification" (ICLR 2018). For t -> 0 it is
    the hinge `max(0, 1 + mean of the k largest others - mean of x_y and the k - 1 largest others)`. The sums are
    elementary symmetric polynomials of `exp(x_j / (k t))`, computed by their logarithms, by halves.
    """
    label, others = _label_and_others(logits, labels, _LOG_OF_ZERO)
    sums = _log_symmetric(others / (k * temperature), k)
    without, beside = sums[:, k], sums[:, k - 1]
    return temperature * jax.nn.softplus((1.0 - label[:, 0] / k) / temperature + without - beside)


def sorted_cross_entropy(logits: Array, labels: Array, k: int, temperature: Array | float) -> Array:
    """`-log((P_1 + P_k) / 2)`, where `P_m` is the probability that the rank of y is at most m, in a relaxed sort.

    Petersen, Kuehne, Borgelt and Deussen, "Differentiable Top-k Classification Learning" (ICML 2022), with one of the
    sorts that they try, SoftSort (Prillo and Eisenschlos 2020): `softsort_topk_mask` gives `P_k`, at a `temperature` in
    the units of the logits. `P_1` is that of the softmax, as in their fine-tuning.
    """

    def log_probability(m: int) -> Array:
        if m == 1:
            return _at_label(jax.nn.log_softmax(logits), labels)
        mask = softsort_topk_mask(logits, m, lam=temperature)
        # Rows of the sort sum to 1, columns need not.
        return _at_label(jnp.log(jnp.clip(mask, jnp.finfo(mask.dtype).tiny, 1.0)), labels)

    return -jax.nn.logsumexp(jnp.stack([log_probability(m) + float(np.log(0.5)) for m in (1, k)]), axis=0)


def _at_label(values: Array, labels: Array) -> Array:
    return jnp.take_along_axis(values, jnp.asarray(labels)[:, None], axis=-1)[:, 0]


def _label_and_others(logits: Array, labels: Array, nothing: float) -> tuple[Array, Array]:
    """Returns the label's logit [B, 1], and all logits [B, n] with `nothing` in its place."""
    labels = jnp.asarray(labels)
    is_label = labels[:, None] == jnp.arange(logits.shape[-1], dtype=labels.dtype)[None]
    return _at_label(logits, labels)[:, None], jnp.where(is_label, nothing, logits)


def _log_symmetric(logs: Array, degree: int) -> Array:
    """`log e_m(exp(logs))` of [B, n], e_m the elementary symmetric polynomials, m = 0, ..., degree: [B, degree + 1].

    They are the coefficients of `prod_j (1 + exp(logs_j) z)`; the factors are multiplied in pairs.
    """
    n = logs.shape[1]
    width = 1 << max(n - 1, 1).bit_length()
    logs = jnp.pad(logs, ((0, 0), (0, width - n)), constant_values=_LOG_OF_ZERO)
    missing = jnp.full((*logs.shape, degree), _LOG_OF_ZERO, logs.dtype)
    # [B, number of factors, degree + 1]: higher coefficients are not needed.
    factors = jnp.concatenate([jnp.zeros_like(logs)[..., None], logs[..., None], missing], axis=-1)[..., : degree + 1]
    while factors.shape[1] > 1:
        left, right = factors[:, 0::2], factors[:, 1::2]
        # Coefficient m of the product: the sum over i of left i and right m - i.
        turned = [
            jnp.concatenate([right[..., m::-1], missing[:, : right.shape[1], : degree - m]], axis=-1)
            for m in range(degree + 1)
        ]
        factors = jax.nn.logsumexp(left[..., None, :] + jnp.stack(turned, axis=-2), axis=-1)
    return factors[:, 0]
