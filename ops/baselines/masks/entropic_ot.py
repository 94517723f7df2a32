"""Top-k by entropic optimal transport (Cuturi, Teboul and Vert, 2019; Xie et al., 2020).

Entries, squashed into (0, 1) and given the mass 1/n each, are transported to two targets: 0, which takes the mass
(n - k)/n, and 1, which takes k/n. The share of an entry's mass that goes to 1 is its mask: dense, and between 0 and 1.

With squared distances as cost the plan is known up to one number, the difference ``h`` of the two target potentials:

    mask_i = sigmoid((h + 2 u_i - 1) / epsilon),

and one iteration of Sinkhorn's algorithm in the log domain, both its half steps taken together, is

    h <- h + epsilon * (logit(k / n) - logit(mean(mask))).
"""

import functools

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import logit
from jax.typing import ArrayLike

from ...interface.arguments import INSIDE_N, Axis, Range, check_range, check_whole
from ...scalar.choice import choose
from .shared import finite, mask_rows, unit_of

_ENTROPY = Range("positive, at least 1e-08", 1e-8)


def _squash(x: Array) -> Array:
    """Maps rows into (0, 1) by standardisation and the logistic map, as Cuturi et al. do; ``-inf`` stays ``-inf``."""
    present = x > -jnp.inf
    count = jnp.maximum(jnp.sum(present, axis=-1, keepdims=True, dtype=x.dtype), 1.0)
    x = finite(choose(present, x, 0.0))
    x = x / unit_of(x)  # cancels later; without it, squares over- or underflow
    centred = choose(present, x - jnp.sum(x, axis=-1, keepdims=True) / count, 0.0)
    scale = jnp.sqrt(jnp.sum(jnp.square(centred), axis=-1, keepdims=True) / count + jnp.finfo(x.dtype).tiny)
    return choose(present, jax.nn.sigmoid(centred / scale), -jnp.inf)


def _score(u: Array, h: Array, epsilon: Array) -> Array:
    return (h + 2.0 * choose(u > -jnp.inf, u, 0.0) - 1.0) / epsilon


def _mask(u: Array, h: Array, epsilon: Array) -> Array:
    return choose(u > -jnp.inf, jax.nn.sigmoid(_score(u, h, epsilon)), 0.0)


@functools.partial(jax.custom_jvp, nondiff_argnums=(3, 4))
def _potential(u: Array, k: Array, epsilon: Array, tolerance: float, max_iterations: int) -> Array:
    """Returns ``h`` by Sinkhorn's iterations, shape ``(rows, 1)``."""
    count = jnp.sum(u > -jnp.inf, axis=-1, keepdims=True, dtype=u.dtype)
    n = jnp.maximum(count, 1.0)
    k = jnp.minimum(k, n * (1.0 - jnp.finfo(u.dtype).eps))
    wanted = logit(k / n)

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        _, error, iteration = state
        return jnp.any(error > tolerance) & (iteration < max_iterations)

    def iterate(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        h, last_error, iteration = state
        share = jnp.sum(_mask(u, h, epsilon), axis=-1, keepdims=True) / n
        share = jnp.clip(share, jnp.finfo(u.dtype).tiny, 1.0 - jnp.finfo(u.dtype).eps)
        step = wanted - logit(share)
        error = choose(count > 0, jnp.abs(share * n / k - 1.0), 0.0)
        # A converged row is not changed any more, so that its result does not depend on other rows.
        return choose(last_error > tolerance, h + epsilon * step, h), error, iteration + 1

    # The start h = 0 is that of Sinkhorn's algorithm, with both potentials 0.
    h = 0.0 * k
    return lax.while_loop(unfinished, iterate, (h, h + jnp.inf, jnp.int32(0)))[0]


@_potential.defjvp
def _potential_jvp(tolerance, max_iterations, primals, tangents):
    """Implicit differentiation of ``sum(mask) = k``."""
    u, k, epsilon = primals
    u_dot, k_dot, epsilon_dot = tangents
    h = _potential(u, k, epsilon, tolerance, max_iterations)
    mask = _mask(u, h, epsilon)
    slope = mask * (1.0 - mask)
    total = jnp.sum(slope, axis=-1, keepdims=True)
    moved = (
        jnp.sum(slope * (2.0 * u_dot - _score(u, h, epsilon) * epsilon_dot), axis=-1, keepdims=True) - epsilon * k_dot
    )
    return h, choose(total > 0, -moved / choose(total > 0, total, 1.0), 0.0)


def entropic_ot_topk_mask(
    x: ArrayLike,
    k: ArrayLike,
    *,
    epsilon: ArrayLike = 1e-2,
    axis: Axis = -1,
    tolerance: float = 1e-3,
    max_iterations: int = 1000,
) -> Array:
    """Returns a dense relaxed top-k mask by entropic optimal transport onto two targets (Sinkhorn's algorithm).

    Cuturi, Teboul and Vert, "Differentiable Ranks and Sorting using Optimal Transport" (NeurIPS 2019); Xie et al.,
    "Differentiable Top-k with Optimal Transport" (NeurIPS 2020). Entries are standardised first, so the mask depends
    on neither their location nor their scale. ``epsilon -> 0`` gives the hard mask, ``inf`` gives ``k / n`` everywhere.

    Differentiable in ``x``, ``k`` and ``epsilon``, forwards and backwards, implicitly and not through the iterations.
    Takes O(n) memory, and O(n) time per iteration; a small ``epsilon`` needs many of them. A new ``k`` or ``epsilon``
    compiles nothing.

    Args:
      x: real array, any shape. Entries equal to ``-inf`` get 0 and leave the others as if they were absent. A NaN makes
        its row NaN.
      k: how much is selected in total, in ``(0, n)``, not necessarily whole; one number, or an array that broadcasts
        to one value per row.
      epsilon: strength of the entropy, positive, in units of the squared distance between the two targets; broadcasts
        like ``k``.
      axis: the axis along which entries compete; a tuple of several, or ``None`` for all.
      tolerance: relative error of ``sum(mask) = k`` at which the iterations stop.
      max_iterations: the most iterations.

    Returns:
      Array of the shape and dtype of ``x`` (integers are promoted to float), strictly between 0 and 1 up to rounding.
      Sums to ``k`` up to ``tolerance``. Computed in float32 at least.

    Raises:
      ValueError: an argument known at trace time is out of range; the message names it and its value.

    >>> (100 * entropic_ot_topk_mask([1.0, 3.0, 2.0, 0.5], 2, epsilon=0.1)).round()
    Array([  7., 100.,  92.,   1.], dtype=float32)
    """
    check_range("tolerance", tolerance, 0, jnp.inf, ">= 0")
    return mask_rows(
        _transported,
        x,
        axis,
        {"k": (k, INSIDE_N), "epsilon": (epsilon, _ENTROPY)},
        tolerance=float(tolerance),
        max_iterations=check_whole("max_iterations", max_iterations, 0, jnp.inf, ">= 0"),
    )


def _transported(x: Array, k: Array, epsilon: Array, *, tolerance: float, max_iterations: int) -> Array:
    u = _squash(x)
    return _mask(u, _potential(u, k, epsilon, tolerance, max_iterations), epsilon)
