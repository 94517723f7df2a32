"""Random gates with exact zeros: the second of the paper's companion notes.

The binary concrete distribution (Maddison, Mnih and Teh, "The Concrete Distribution", ICLR 2017, appendix B) is a
Bernoulli variable relaxed to the open interval (0, 1). With `L` standard logistic (the difference of two Gumbel
variables) and `s` the logistic function,

    X = s((L + log_alpha) / temperature);

`temperature -> 0` gives a Bernoulli variable, 1 with probability `s(log_alpha)`. As X increases in L, with
`l(x) = temperature logit(x) - log_alpha`,

    cdf(x) = P(L <= l(x)) = s(l(x)),
    pdf(x) = s(l(x)) s(-l(x)) temperature / (x (1 - x))                 (change of variables)
           = temperature alpha x^(-temperature-1) (1-x)^(-temperature-1)
             / (alpha x^(-temperature) + (1-x)^(-temperature))^2        (as in the paper).

The last form over- and underflows, so the density is computed in logarithms.

A hard concrete gate (Louizos, Welling and Kingma, "Learning Sparse Neural Networks through L0 Regularization", ICLR
2018, eqs. 10 to 13) is X stretched from (0, 1) to (LOW, HIGH) and clipped, so that it is exactly 0 or 1 with positive
probability: `z = min(1, max(0, X (HIGH - LOW) + LOW))`. The gate is differentiable in `log_alpha`, and so is the
probability that it is not 0, which replaces the L0 norm in a loss. With `x(z) = (z - LOW) / (HIGH - LOW)`,

    P(z = 0) = cdf(x(0))     = s(temperature log(-LOW / HIGH) - log_alpha),
    P(z = 1) = 1 - cdf(x(1)) = s(log_alpha - temperature log((1 - LOW) / (HIGH - 1))),
    density on (0, 1) = pdf(x(z)) / (HIGH - LOW),   which integrates to 1 - P(z = 0) - P(z = 1).

A `temperature` belongs to the distribution: it is not the strength of a relaxation, which is `lam` elsewhere. Every
function raises ValueError if it, a scalar, is known and not positive.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from ..interface import POSITIVE, check_scalar, floating, working_dtype

__all__ = [
    "binary_concrete_cdf",
    "binary_concrete_pdf",
    "deterministic_gates",
    "hard_concrete_cdf",
    "hard_concrete_pdf",
    "l0_penalty",
    "probability_one",
    "probability_open",
    "probability_zero",
    "sample_binary_concrete",
    "sample_gates",
]


def __dir__() -> list[str]:
    """Returns the public names; the rest is implementation."""
    return list(__all__)


# The values of the experiments of Louizos et al.
TEMPERATURE = 2 / 3
LOW, HIGH = -0.1, 1.1


def sample_binary_concrete(key: Array, log_alpha: Array, *, temperature: ArrayLike) -> Array:
    """Returns independent samples, one per entry of `log_alpha`, differentiable in `log_alpha` and `temperature`.

    Samples lie strictly between 0 and 1, but may round to 0 or 1.

    Args:
      key: a key of `jax.random`.
      log_alpha: float array, any shape: the location, which is the log odds of the relaxed Bernoulli variable.
      temperature: > 0, a scalar.

    See also:
      `binary_concrete_pdf` and `binary_concrete_cdf`; `sample_gates` for exact zeros.
    """
    check_scalar("temperature", temperature, POSITIVE)
    log_alpha = floating(log_alpha, "log_alpha")
    noise = jax.random.logistic(key, log_alpha.shape, log_alpha.dtype)
    return jax.nn.sigmoid((noise + log_alpha) / temperature)


def binary_concrete_cdf(x: ArrayLike, log_alpha: ArrayLike, *, temperature: ArrayLike) -> Array:
    """Returns `P(X <= x)`, which is 0 for `x <= 0` and 1 for `x >= 1`.

    Args:
      x: real array, any shape.
      log_alpha: of the shape of `x`, or a scalar.
      temperature: > 0, a scalar.

    Returns:
      Array of the shape and dtype of `x` (integers are promoted to float).

    See also:
      `binary_concrete_pdf`; `sample_binary_concrete`.

    >>> float(binary_concrete_cdf(0.5, 0.0, temperature=0.5))
    0.5
    """
    x, inside, logit, log_alpha, temperature = _prepare(x, log_alpha, temperature)
    beyond = (x >= 1).astype(logit.dtype)
    return jnp.where(inside, jax.nn.sigmoid(temperature * logit - log_alpha), beyond).astype(x.dtype)


def binary_concrete_pdf(x: ArrayLike, log_alpha: ArrayLike, *, temperature: ArrayLike) -> Array:
    """Returns the density at `x`, 0 outside the open interval (0, 1).

    Below a temperature of 1 it grows without bound towards both ends. Arguments and result are as for
    `binary_concrete_cdf`.

    See also:
      `binary_concrete_cdf`; `sample_binary_concrete`.

    >>> float(binary_concrete_pdf(0.5, 0.0, temperature=1.0))
    1.0
    """
    x, inside, logit, log_alpha, temperature = _prepare(x, log_alpha, temperature)
    noise = temperature * logit - log_alpha
    log_logistic = jax.nn.log_sigmoid(noise) + jax.nn.log_sigmoid(-noise)
    # log(1 / (x (1 - x))), from the logit
    log_slope = -jax.nn.log_sigmoid(logit) - jax.nn.log_sigmoid(-logit)
    return jnp.where(inside, temperature * jnp.exp(log_logistic + log_slope), 0.0).astype(x.dtype)


def _prepare(x: ArrayLike, log_alpha: ArrayLike, temperature: ArrayLike) -> tuple[Array, Array, Array, Array, Array]:
    """Returns `x`, whether it is inside (0, 1), its logit there, and the parameters in the working dtype."""
    temperature = check_scalar("temperature", temperature, POSITIVE)
    x = floating(x)
    dtype = working_dtype(x.dtype)
    wide = x.astype(dtype)
    inside = ~((wide <= 0) | (wide >= 1))  # true for NaN, which reaches the result
    safe = jnp.where(inside, wide, 0.5)
    logit = jnp.log(safe) - jnp.log1p(-safe)
    return x, inside, logit, jnp.asarray(log_alpha).astype(dtype), temperature.astype(dtype)


def sample_gates(key: Array, log_alpha: Array, *, temperature: ArrayLike = TEMPERATURE) -> Array:
    """Returns independent gates in [0, 1], one per entry of `log_alpha`, reparametrised (eqs. 10, 11).

    See also:
      `deterministic_gates` for evaluation; `l0_penalty` for the loss; `sparse_topk.pruning.Scored` for masks of a given
      size.
    """
    return _stretch(sample_binary_concrete(key, log_alpha, temperature=temperature))


def deterministic_gates(log_alpha: Array) -> Array:
    """Returns the gates for evaluation (eq. 13), which are exactly 0 where `log_alpha <= log(-LOW / HIGH)`.

    See also:
      `sample_gates` for training.

    >>> deterministic_gates(jnp.array([-9.0, 0.0, 9.0]))
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    return _stretch(jax.nn.sigmoid(floating(log_alpha, "log_alpha")))


def probability_open(log_alpha: Array, *, temperature: ArrayLike = TEMPERATURE) -> Array:
    """Returns `P(z != 0)`, the probability that a sampled gate is not 0 (eq. 12).

    See also:
      `probability_zero`; `l0_penalty`, its sum.

    >>> float((100 * probability_open(jnp.array(0.0))).round())
    83.0
    """
    check_scalar("temperature", temperature, POSITIVE)
    return jax.nn.sigmoid(floating(log_alpha, "log_alpha") - temperature * math.log(-LOW / HIGH))


def probability_zero(log_alpha: Array, *, temperature: ArrayLike = TEMPERATURE) -> Array:
    """Returns `P(z = 0)`, the probability that a gate is exactly 0, without the cancellation in `1 - P(z != 0)`.

    See also:
      `probability_open`; `probability_one`.

    >>> float((100 * probability_zero(jnp.array(0.0))).round())
    17.0
    """
    check_scalar("temperature", temperature, POSITIVE)
    return jax.nn.sigmoid(temperature * math.log(-LOW / HIGH) - floating(log_alpha, "log_alpha"))


def probability_one(log_alpha: Array, *, temperature: ArrayLike = TEMPERATURE) -> Array:
    """Returns `P(z = 1)`, the probability that a sampled gate is exactly 1.

    See also:
      `probability_open`; `probability_zero`.

    >>> float((100 * probability_one(jnp.array(0.0))).round())
    17.0
    """
    check_scalar("temperature", temperature, POSITIVE)
    return jax.nn.sigmoid(floating(log_alpha, "log_alpha") - temperature * math.log((1 - LOW) / (HIGH - 1)))


def hard_concrete_pdf(z: ArrayLike, log_alpha: ArrayLike, *, temperature: ArrayLike = TEMPERATURE) -> Array:
    """Returns the density of a gate's continuous part at `z`, 0 outside the open interval (0, 1).

    `log_alpha` has the shape of `z` or is a scalar; the result has the shape and dtype of `z`.

    See also:
      `hard_concrete_cdf`; `sample_gates`.

    >>> float((100 * hard_concrete_pdf(0.5, 0.0)).round())
    56.0
    """
    z = floating(z)
    density = binary_concrete_pdf(_unstretch(z), log_alpha, temperature=temperature) / (HIGH - LOW)
    return jnp.where((z <= 0) | (z >= 1), 0.0, density).astype(z.dtype)


def hard_concrete_cdf(z: ArrayLike, log_alpha: ArrayLike, *, temperature: ArrayLike = TEMPERATURE) -> Array:
    """Returns the probability that a gate is at most `z`: `P(z = 0)` at 0, and 1 from 1 on.

    `log_alpha` has the shape of `z` or is a scalar; the result has the shape and dtype of `z`.

    See also:
      `hard_concrete_pdf`; `sample_gates`.

    >>> float(hard_concrete_cdf(1.0, 0.0))
    1.0
    """
    z = floating(z)
    between = binary_concrete_cdf(_unstretch(z), log_alpha, temperature=temperature)
    return jnp.where(z < 0, 0.0, jnp.where(z >= 1, 1.0, between)).astype(z.dtype)


def l0_penalty(log_alphas: object, *, temperature: ArrayLike = TEMPERATURE) -> Array:
    """Returns the expected number of gates of a model that are not 0 (the L0 norm of eq. 4, relaxed).

    Args:
      log_alphas: pytree of float arrays, one entry per gate. If several weights share a gate, broadcast it to one entry
        per weight.
      temperature: > 0, a scalar.

    Returns:
      A scalar, float32 (float64 where a leaf is float64); 0 for no gates.

    See also:
      `sample_gates`; `probability_open` for each gate.

    >>> float(l0_penalty({"layer": jnp.zeros(4)}).round())
    3.0
    """
    leaves = [floating(leaf, "log_alphas") for leaf in jax.tree.leaves(log_alphas)]
    dtype = jnp.dtype(jnp.float64 if any(leaf.dtype == jnp.float64 for leaf in leaves) else jnp.float32)
    open_gates = functools.partial(probability_open, temperature=temperature)
    return sum((open_gates(leaf.astype(dtype)).sum() for leaf in leaves), jnp.zeros((), dtype))


def _stretch(s: Array) -> Array:
    return jnp.clip(s * (HIGH - LOW) + LOW, 0.0, 1.0)


def _unstretch(z: Array) -> Array:
    return (z.astype(working_dtype(z.dtype)) - LOW) / (HIGH - LOW)
