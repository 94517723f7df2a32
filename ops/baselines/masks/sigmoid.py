"""Top-k by a shifted sigmoid: the binary entropy as regularisation (Amos et al., 2019; Qian et al., 2022).

The limited multi-label projection of Amos, Koltun and Kolter,

    max_y <x, y> + temperature * sum_i H(y_i)   over   0 <= y <= 1, sum(y) = k,    H the binary entropy,

has the solution ``y_i = sigmoid((x_i - tau) / temperature)`` with ``tau`` the multiplier of ``sum(y) = k``. It is the
operator of entropic optimal transport (``ops.baselines.masks.entropic_ot``) without the standardisation of the entries.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from ...interface.arguments import Axis
from ...scalar.choice import choose
from ...scalar.cpu import rows_without_derivative
from ...scalar.equation import Equation
from ...scalar.rootfinding import End, Evaluation, find_root
from ...scalar.rows import Rows
from ...scalar.threshold import extent, guess
from ...scalar.twofloat import TwoFloat
from .distribution import Distribution, distribution_mask, position


def _density(t: Array) -> Array:
    return jax.nn.sigmoid(t) * jax.nn.sigmoid(-t)


_LOGISTIC = Distribution(jax.nn.sigmoid, _density)


def _solve(x: Array, k: Array, temperature: Array) -> TwoFloat:
    limits, rows = jnp.finfo(x.dtype), rows_without_derivative(Rows())
    equation = Equation(p=2.0, rows=rows)
    size = extent((x,), temperature, equation)
    available = size.available

    def evaluate(tau: TwoFloat) -> Evaluation:
        def of_entry(x: Array) -> tuple[Array, Array]:
            t, present = position(x, tau, temperature), x > -jnp.inf
            return choose(present, jax.nn.sigmoid(t), 0.0), choose(present, _density(t), 0.0)

        total, density = rows.sum(of_entry, (x,))
        slope = density / temperature
        excess = total - k
        # Newton on the log-odds of total / available, which is linear in tau where the entries are all alike.
        odds = jnp.log1p(excess / k) - jnp.log1p(-excess / (available - k))
        step = odds * total * (available - total) / (available * slope)
        return Evaluation(
            excess=excess,
            level=choose(jnp.isnan(odds), excess, odds),  # NaN if k is the number of entries
            step=step,
            trusted=jnp.isfinite(step),
            converged=jnp.abs(excess) <= 4 * limits.eps * k,
            scale=temperature,
        )

    # `guess` assumes a uniform variable on (0, width) subtracted from the entries. Here it is a logistic one, which has
    # mean 0 and the variance of a uniform one of this width.
    width = 2 * jnp.pi * temperature
    start, _ = guess((x,), k, width, equation, size)
    return find_root(
        evaluate, start + 0.5 * width, End(float(limits.min), jnp.inf), End(float(limits.max), -jnp.inf)
    ).point


def sigmoid_topk_mask(x: ArrayLike, k: ArrayLike, *, temperature: ArrayLike = 1.0, axis: Axis = -1) -> Array:
    """Returns the dense relaxed top-k mask ``sigmoid((x - tau) / temperature)`` that sums to ``k``.

    Amos, Koltun and Kolter, "The Limited Multi-Label Projection Layer" (2019); Qian et al., "Multi-Vector Retrieval
    as Sparse Alignment" (2022), by another solver. Here ``tau`` is the root of one scalar equation, found in a few
    passes over the data and differentiated implicitly. ``temperature -> 0`` gives the hard mask, ``inf`` gives
    ``k / n`` everywhere.

    Differentiable in ``x``, ``k`` and ``temperature``, forwards and backwards. Takes O(n) time and memory; a new
    ``k`` or ``temperature`` compiles nothing.

    Args:
      x: real array, any shape. Entries equal to ``-inf`` get 0 and leave the others as if they were absent; ``+inf``
        entries come first. A NaN makes its row NaN.
      k: how much is selected in total, in ``(0, n)``, not necessarily whole; one number, or an array that broadcasts
        to one value per row.
      temperature: positive, in the units of ``x``; broadcasts like ``k``.
      axis: the axis along which entries compete; a tuple of several, or ``None`` for all.

    Returns:
      Array of the shape and dtype of ``x`` (integers are promoted to float), strictly between 0 and 1 up to rounding.
      Computed in float32 at least.

    Raises:
      ValueError: an argument known at trace time is out of range; the message names it and its value.

    >>> (100 * sigmoid_topk_mask([1.0, 3.0, 2.0, 0.5], 2)).round()
    Array([35., 80., 60., 25.], dtype=float32)
    """
    return distribution_mask(x, k, temperature, axis, _LOGISTIC, _solve)
