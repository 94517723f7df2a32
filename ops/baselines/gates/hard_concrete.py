"""Hard concrete gates: random gates in [0, 1] that are exactly 0 or 1 with positive probability.

Louizos, Welling and Kingma, "Learning Sparse Neural Networks through L0 Regularization" (ICLR
2018), eqs. 10 to 13. A binary concrete variable `s`, a sigmoid of logistic noise, is stretched from
(0, 1) to (low, high), with `low < 0 < 1 < high`, and clipped to [0, 1]:

    z = min(1, max(0, s (high - low) + low)).

The gate is differentiable in `log_alpha`, and so is the probability that it is not 0, which stands
for the L0 norm in a loss. With `Q` the cdf and `q` the density of `s`, and `s(z) = (z - low) /
(high - low)` what is stretched to `z`, whose logit is `log((z - low) / (high - z))`,

    P(z = 0) = Q(s(0))     = sigmoid(temperature log(-low / high) - log_alpha),
    P(z = 1) = 1 - Q(s(1)) = sigmoid(log_alpha - temperature log((1 - low) / (high - 1))),
    P(z != 0) = 1 - P(z = 0),
    density on (0, 1) = q(s(z)) / (high - low),   which integrates to 1 - P(z = 0) - P(z = 1),
    cdf(z) = Q(s(z)) for 0 <= z < 1,   0 below and 1 above.

The parameters are `temperature` > 0, a scalar, and the Python numbers `low` and `high`. Every function
raises ValueError, naming the parameter and its value, where one is known and out of range.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from ...interface.arguments import floating, working_dtype
from .binary_concrete import (
    binary_concrete_cdf,
    binary_concrete_pdf,
    check_temperature,
    sample_binary_concrete,
)

# The values of the paper's experiments.
TEMPERATURE = 2 / 3
LOW, HIGH = -0.1, 1.1


def sample_gates(
    key: Array, log_alpha: Array, *, temperature: ArrayLike = TEMPERATURE, low: float = LOW, high: float = HIGH
) -> Array:
    """Returns independent gates in [0, 1], one per entry of `log_alpha`, reparametrised (eqs. 10, 11)."""
    _check(temperature, low, high)
    return _stretch(sample_binary_concrete(key, log_alpha, temperature=temperature), low, high)


def deterministic_gates(log_alpha: Array, *, low: float = LOW, high: float = HIGH) -> Array:
    """Returns the gates at evaluation (eq. 13), which are 0 exactly where `log_alpha <= log(-low / high)`.

    >>> deterministic_gates(jnp.array([-9.0, 0.0, 9.0]))
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    _check(TEMPERATURE, low, high)
    return _stretch(jax.nn.sigmoid(floating(log_alpha, "log_alpha")), low, high)


def probability_open(
    log_alpha: Array, *, temperature: ArrayLike = TEMPERATURE, low: float = LOW, high: float = HIGH
) -> Array:
    """Returns `P(z != 0)`, the probability that a sampled gate is not 0 (eq. 12).

    >>> float((100 * probability_open(jnp.array(0.0))).round())
    83.0
    """
    _check(temperature, low, high)
    return jax.nn.sigmoid(floating(log_alpha, "log_alpha") - temperature * math.log(-low / high))


def probability_zero(
    log_alpha: Array, *, temperature: ArrayLike = TEMPERATURE, low: float = LOW, high: float = HIGH
) -> Array:
    """Returns `P(z = 0)`, the probability that a gate is exactly 0, without the cancellation in `1 - P(z != 0)`.

    >>> float((100 * probability_zero(jnp.array(0.0))).round())
    17.0
    """
    _check(temperature, low, high)
    return jax.nn.sigmoid(temperature * math.log(-low / high) - floating(log_alpha, "log_alpha"))


def probability_one(
    log_alpha: Array, *, temperature: ArrayLike = TEMPERATURE, low: float = LOW, high: float = HIGH
) -> Array:
    """Returns `P(z = 1)`, the probability that a sampled gate is exactly 1.

    >>> float((100 * probability_one(jnp.array(0.0))).round())
    17.0
    """
    _check(temperature, low, high)
    return jax.nn.sigmoid(floating(log_alpha, "log_alpha") - temperature * math.log((1 - low) / (high - 1)))


def hard_concrete_pdf(
    z: ArrayLike,
    log_alpha: ArrayLike,
    *,
    temperature: ArrayLike = TEMPERATURE,
    low: float = LOW,
    high: float = HIGH,
) -> Array:
    """Returns the density of a gate's continuous part at `z`, 0 outside the open interval (0, 1).

    `log_alpha` has the shape of `z` or is a scalar; the result has the shape and dtype of `z`.

    >>> float((100 * hard_concrete_pdf(0.5, 0.0)).round())
    56.0
    """
    _check(temperature, low, high)
    z = floating(z)
    density = binary_concrete_pdf(_unstretch(z, low, high), log_alpha, temperature=temperature) / (high - low)
    return jnp.where((z <= 0) | (z >= 1), 0.0, density).astype(z.dtype)


def hard_concrete_cdf(
    z: ArrayLike,
    log_alpha: ArrayLike,
    *,
    temperature: ArrayLike = TEMPERATURE,
    low: float = LOW,
    high: float = HIGH,
) -> Array:
    """The probability that a gate is at most `z`: `P(z = 0)` at 0, and 1 from 1 on. Shapes as those of the density.

    >>> float(hard_concrete_cdf(1.0, 0.0))
    1.0
    """
    _check(temperature, low, high)
    z = floating(z)
    between = binary_concrete_cdf(_unstretch(z, low, high), log_alpha, temperature=temperature)
    return jnp.where(z < 0, 0.0, jnp.where(z >= 1, 1.0, between)).astype(z.dtype)


def l0_penalty(
    log_alphas: object, *, temperature: ArrayLike = TEMPERATURE, low: float = LOW, high: float = HIGH
) -> Array:
    """The expected number of gates of a model that are not 0 (the L0 norm of eq. 4, relaxed).

    Args:
      log_alphas: pytree of float arrays, one entry per gate. A gate that several weights share has to be counted
        once for each: scale its leaf's share of the penalty, or broadcast it.
      temperature: > 0, a scalar.
      low: < 0.
      high: > 1.

    Returns:
      A scalar, float32 (float64 where a leaf is float64); 0 for no gates.

    Raises:
      ValueError: a parameter is known and out of range.

    >>> float(l0_penalty({"layer": jnp.zeros(4)}).round())
    3.0
    """
    leaves = [floating(leaf, "log_alphas") for leaf in jax.tree.leaves(log_alphas)]
    dtype = jnp.dtype(jnp.float64 if any(leaf.dtype == jnp.float64 for leaf in leaves) else jnp.float32)
    open_gates = functools.partial(probability_open, temperature=temperature, low=low, high=high)
    return sum((open_gates(leaf.astype(dtype)).sum() for leaf in leaves), jnp.zeros((), dtype))


def _stretch(s: Array, low: float, high: float) -> Array:
    return jnp.clip(s * (high - low) + low, 0.0, 1.0)


def _unstretch(z: Array, low: float, high: float) -> Array:
    return (z.astype(working_dtype(z.dtype)) - low) / (high - low)


def _check(temperature: ArrayLike, low: float, high: float) -> None:
    check_temperature(temperature)
    if not -math.inf < low < 0:
        raise ValueError(f"low must be negative and finite, got {low}")
    if not 1 < high < math.inf:
        raise ValueError(f"high must be above 1 and finite, got {high}")
