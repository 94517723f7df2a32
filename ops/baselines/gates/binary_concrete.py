"""The binary concrete distribution: a Bernoulli variable relaxed to the open interval (0, 1).

Maddison, Mnih and Teh, "The Concrete Distribution" (ICLR 2017), appendix B. With `L` standard
logistic (the difference of two Gumbel variables) and `s` the logistic function,

    X = s((L + log_alpha) / temperature);

`temperature -> 0` gives a Bernoulli variable, 1 with probability `s(log_alpha)`. As X increases in
L, the two functions follow from those of L, whose cdf is `s` and whose density is `s(l) s(-l)`, at

    l(x) = temperature logit(x) - log_alpha,    l'(x) = temperature / (x (1 - x)):

    cdf(x) = P(L <= l(x)) = s(l(x)),
    pdf(x) = s(l(x)) s(-l(x)) temperature / (x (1 - x))                 (change of variables)
           = temperature alpha x^(-temperature-1) (1-x)^(-temperature-1)
             / (alpha x^(-temperature) + (1-x)^(-temperature))^2        (as in the paper).

The last form over- and underflows; the functions here compute in logarithms.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from ...interface.arguments import check_range, floating, working_dtype


def sample_binary_concrete(key: Array, log_alpha: Array, *, temperature: ArrayLike) -> Array:
    """Returns independent samples, one per entry of `log_alpha`, differentiable in it and in `temperature`.

    Samples lie strictly between 0 and 1 in exact arithmetic; in floats they may round to 0 or 1.

    Args:
      key: a key of `jax.random`.
      log_alpha: float array, any shape: the location, which is the log odds of the relaxed Bernoulli variable.
      temperature: > 0, a scalar.

    Raises:
      ValueError: `temperature` is known and not positive.
    """
    check_temperature(temperature)
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

    Raises:
      ValueError: `temperature` is known and not positive.

    >>> float(binary_concrete_cdf(0.5, 0.0, temperature=0.5))
    0.5
    """
    x, inside, logit, log_alpha, temperature = _prepare(x, log_alpha, temperature)
    beyond = (x >= 1).astype(logit.dtype)
    return jnp.where(inside, jax.nn.sigmoid(temperature * logit - log_alpha), beyond).astype(x.dtype)


def binary_concrete_pdf(x: ArrayLike, log_alpha: ArrayLike, *, temperature: ArrayLike) -> Array:
    """Returns the density at `x`, 0 outside the open interval (0, 1). Arguments, result and errors as for the cdf.

    Below a temperature of 1 it grows without bound towards both ends.

    >>> float(binary_concrete_pdf(0.5, 0.0, temperature=1.0))
    1.0
    """
    x, inside, logit, log_alpha, temperature = _prepare(x, log_alpha, temperature)
    noise = temperature * logit - log_alpha
    log_logistic = jax.nn.log_sigmoid(noise) + jax.nn.log_sigmoid(-noise)
    # log(1 / (x (1 - x))), from the logit
    log_slope = -jax.nn.log_sigmoid(logit) - jax.nn.log_sigmoid(-logit)
    return jnp.where(inside, temperature * jnp.exp(log_logistic + log_slope), 0.0).astype(x.dtype)


def check_temperature(temperature: ArrayLike) -> None:
    """Raises ValueError if the temperature is known and not positive."""
    check_range("temperature", temperature, float(jnp.finfo(jnp.float32).tiny), jnp.inf, "positive")


def _prepare(x: ArrayLike, log_alpha: ArrayLike, temperature: ArrayLike) -> tuple[Array, Array, Array, Array, Array]:
    """Returns `x`, whether it is inside (0, 1), its logit there, and the parameters in the working dtype."""
    check_temperature(temperature)
    x = floating(x)
    dtype = working_dtype(x.dtype)
    wide = x.astype(dtype)
    inside = ~((wide <= 0) | (wide >= 1))  # true for NaN, which is then propagated
    safe = jnp.where(inside, wide, 0.5)
    logit = jnp.log(safe) - jnp.log1p(-safe)
    return x, inside, logit, jnp.asarray(log_alpha).astype(dtype), jnp.asarray(temperature).astype(dtype)
