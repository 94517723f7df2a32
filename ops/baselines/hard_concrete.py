"""Hard concrete gates: random gates in [0, 1] that are exactly 0 or 1 with positive probability.

Louizos, Welling and Kingma, "Learning Sparse Neural Networks through L0 Regularization" (ICLR
2018), eqs. 10 to 13. A binary concrete variable `s`, a sigmoid of logistic noise, is stretched from
(0, 1) to (LOW, HIGH) and clipped to [0, 1]. The gate is differentiable in `log_alpha`, and so is
the probability that it is not 0, which stands for the L0 norm in a loss.
"""

import math

import jax
import jax.numpy as jnp

# Those of the paper's experiments.
TEMPERATURE = 2 / 3
LOW, HIGH = -0.1, 1.1


def sample_gates(key: jax.Array, log_alpha: jax.Array) -> jax.Array:
    """Independent gates in [0, 1], one per entry of `log_alpha`, reparametrised (eqs. 10, 11)."""
    noise = jax.random.logistic(key, log_alpha.shape, log_alpha.dtype)
    return _stretch(jax.nn.sigmoid((noise + log_alpha) / TEMPERATURE))


def deterministic_gates(log_alpha: jax.Array) -> jax.Array:
    """The gates at evaluation (eq. 13): 0 exactly where `log_alpha <= log(-LOW / HIGH)`."""
    return _stretch(jax.nn.sigmoid(log_alpha))


def probability_open(log_alpha: jax.Array) -> jax.Array:
    """The probability that a sampled gate is not 0 (eq. 12)."""
    return jax.nn.sigmoid(log_alpha - TEMPERATURE * math.log(-LOW / HIGH))


def _stretch(s: jax.Array) -> jax.Array:
    return jnp.clip(s * (HIGH - LOW) + LOW, 0.0, 1.0)
