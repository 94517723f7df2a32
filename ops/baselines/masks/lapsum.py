"""Top-k by sums of Laplace distribution functions: LapSum (Struski et al., 2025).

The mask is ``y_i = F((x_i - tau) / temperature)``, with ``F`` the distribution function of the Laplace distribution
and ``tau`` such that ``sum(y) = k``. Between two neighbouring entries ``s_m >= tau >= s_{m+1}`` (in descending order)
the sum is

    m - (A / 2) z + (C / 2) exp(-g) / z,    z = exp(-(s_m - tau) / temperature),  g = (s_m - s_{m+1}) / temperature,

with ``A`` and ``C`` the sums of ``exp(-distance / temperature)`` over the entries above, from ``s_m``, and over those
below, from ``s_{m+1}``. So ``tau`` solves a quadratic in ``z``, here in logarithms.
"""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from ...interface.arguments import Axis
from ...scalar.choice import choose
from ...scalar.twofloat import TwoFloat, shift
from . import laplace_sums
from .distribution import Distribution, distribution_mask
from .shared import finite


def _cumulative(t: Array) -> Array:
    below = t < 0  # two branches, each smooth where it is taken: the slope at 0 is 1 / 2
    return choose(below, 0.5 * jnp.exp(choose(below, t, 0.0)), 1.0 - 0.5 * jnp.exp(choose(below, 0.0, -t)))


def _density(t: Array) -> Array:
    return 0.5 * jnp.exp(choose(t < 0, t, -t))


_LAPLACE = Distribution(_cumulative, _density)


def _solve(x: Array, k: Array, temperature: Array) -> TwoFloat:
    n = x.shape[-1]
    s = jnp.sort(x, axis=-1, descending=True)
    present = (s > -jnp.inf).astype(x.dtype)
    s = finite(s)
    above = laplace_sums.sum_above(present, s, temperature)
    below = laplace_sums.sum_below(present, s, temperature)
    rank = jnp.arange(1, n + 1, dtype=x.dtype)[None, :]
    sum_at = rank - 0.5 * above + 0.5 * (below - 1.0)  # of the mask, if tau were s_j; it grows with j
    m = jnp.sum((sum_at <= k) & (present > 0), axis=-1, keepdims=True)  # entries at or above tau

    def pick(values: Array, index: Array) -> Array:
        """Returns one value per row by its rank, counted from 1."""
        return jnp.take_along_axis(values, jnp.clip(index - 1, 0, n - 1), axis=-1)

    upper, lower = pick(s, m), pick(s, m + 1)
    log_above = jnp.log(choose(m > 0, pick(above, m), 0.0))
    log_below = jnp.log(choose(m < n, pick(below, m + 1), 0.0))
    surplus = m.astype(x.dtype) - k
    # The positive root of A z^2 - 2 (m - k) z - C exp(-g) = 0, or for m < k of the analogous equation from s_{m+1}: as
    # exp(numerator) / A, or / C. In logarithms, since exp(-g) underflows where the entries lie far apart.
    log_half = jnp.log(jnp.abs(surplus))
    log_product = log_above + log_below - (upper - lower) / temperature
    numerator = jnp.logaddexp(log_half, 0.5 * jnp.logaddexp(2.0 * log_half, log_product))
    # If k asks for all entries or none, tau lies far outside the entries.
    numerator = jnp.maximum(numerator, jnp.log(jnp.finfo(x.dtype).tiny))
    from_above = (surplus >= 0) & (m > 0)
    anchor = choose(from_above, upper, lower)
    move = choose(from_above, numerator - log_above, log_below - numerator)
    move = choose(jnp.any(present > 0, axis=-1, keepdims=True), move, 0.0)
    return shift(TwoFloat(anchor, jnp.zeros_like(anchor)), temperature * move)


def lapsum_topk_mask(x: ArrayLike, k: ArrayLike, *, temperature: ArrayLike = 1.0, axis: Axis = -1) -> Array:
    """Returns a dense relaxed top-k mask by sums of Laplace distribution functions, in closed form after a sort.

    Struski, Bednarczyk, Podolak and Tabor, "LapSum - One Method to Differentiate Them All: Ranking, Sorting and Top-k
    Selection" (2025). ``temperature -> 0`` gives the hard mask, ``inf`` gives ``k / n`` everywhere.

    Differentiable in ``x``, ``k`` and ``temperature``, forwards and backwards, by the implicit function theorem. Takes
    O(n log n) time and O(n) memory; a new ``k`` or ``temperature`` compiles nothing.

    Args:
      x: real array, any shape. Entries equal to ``-inf`` get 0 and leave the others as if they were absent; ``+inf``
        entries come first. A NaN makes its row NaN.
      k: how much is selected in total, in ``(0, n)``, not necessarily whole; one number, or an array that broadcasts
        to one value per row.
      temperature: scale of the distribution, positive, in the units of ``x``; broadcasts like ``k``.
      axis: the axis along which entries compete; a tuple of several, or ``None`` for all.

    Returns:
      Array of the shape and dtype of ``x`` (integers are promoted to float), strictly between 0 and 1 up to rounding.
      Computed in float32 at least.

    Raises:
      ValueError: an argument known at trace time is out of range; the message names it and its value.

    >>> (100 * lapsum_topk_mask([1.0, 3.0, 2.0, 0.5], 2)).round()
    Array([28., 88., 67., 17.], dtype=float32)
    """
    return distribution_mask(x, k, temperature, axis, _LAPLACE, _solve)
