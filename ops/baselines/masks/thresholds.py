"""Masks ``F((x_i - tau) / lam)``, with a distribution function ``F`` and ``tau`` such that they sum to ``k``.

``tau`` is the root of one equation. By the implicit function theorem, with ``t_i = (x_i - tau) / lam`` and
``f = F'``,

    d tau = (sum_i f(t_i) (d x_i - t_i d lam) - lam d k) / sum_i f(t_i).

**Shifted sigmoid** (Amos et al., 2019; Qian et al., 2022). The limited multi-label projection,

    max_y <x, y> + lam * sum_i H(y_i)   over   0 <= y <= 1, sum(y) = k,    H the binary entropy,

has the solution ``y_i = sigmoid((x_i - tau) / lam)`` with ``tau`` the multiplier of ``sum(y) = k``.

**Entropic optimal transport** (Cuturi, Teboul and Vert, 2019; Xie et al., 2020). Entries, squashed to ``u`` in (-1, 1),
have the mass 1/n each. They are transported to two targets: -1, which takes the mass (n - k)/n, and 1, which takes k/n.
The mask of an entry is the share of its mass that goes to 1. With a quarter of the squared distance as cost it is
``sigmoid((u_i - tau) / lam)``, the fixed point of Sinkhorn's iterations.

**Sums of Laplace distribution functions** (LapSum; Struski et al., 2025). ``F`` is that of a Laplace variable. The
paper solves a quadratic equation after a sort; here the root is found without a sort.

**DFTopK** (Zhu et al., 2025) gives up the sum: ``tau`` lies halfway between the ``k``-th largest entry and the next.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from ...arithmetic import TwoFloat, choose
from ...interface import INSIDE_N, WHOLE_UP_TO_N, Axis
from ...scalar.equation import Equation
from ...scalar.mask import hard_selection
from ...scalar.rootfinding import End, Evaluation, find_root
from ...scalar.rows import Rows, rows_without_derivative
from ...scalar.threshold import extent, guess
from .shared import FAR, finite, finite_above, mask_rows, unit_of


@dataclasses.dataclass(frozen=True)
class _Distribution:
    """A distribution symmetric about 0: its distribution function and its density."""

    cumulative: Callable[[Array], Array]
    density: Callable[[Array], Array]


def _position(x: Array, tau: TwoFloat, lam: Array) -> Array:
    """Returns ``t = (x - tau) / lam``, kept finite so that derivatives far from ``tau`` are 0 and not NaN."""
    away = choose(x > -jnp.inf, (x - tau.hi) - tau.lo, 0.0)
    return jnp.clip(away, -FAR * lam, FAR * lam) / lam


@functools.partial(jax.custom_jvp, nondiff_argnums=(3,))
def _threshold(x: Array, k: Array, lam: Array, distribution: _Distribution) -> TwoFloat:
    """Returns ``tau`` of each row; ``lo`` carries the derivative."""
    limits, rows = jnp.finfo(x.dtype), rows_without_derivative(Rows())
    equation = Equation(p=2.0, rows=rows)
    size = extent((x,), lam, equation)
    available = size.available

    def evaluate(tau: TwoFloat) -> Evaluation:
        def of_entry(x: Array) -> tuple[Array, Array]:
            t, present = _position(x, tau, lam), x > -jnp.inf
            return choose(present, distribution.cumulative(t), 0.0), choose(present, distribution.density(t), 0.0)

        total, density = rows.sum(of_entry, (x,))
        slope = density / lam
        excess = total - k
        # Newton on the log odds of total / available, which is linear in tau where all entries are equal.
        odds = jnp.log1p(excess / k) - jnp.log1p(-excess / (available - k))
        step = odds * total * (available - total) / (available * slope)
        return Evaluation(
            excess=excess,
            level=choose(jnp.isnan(odds), excess, odds),  # NaN if k is the number of entries
            step=step,
            trusted=jnp.isfinite(step),
            converged=jnp.abs(excess) <= 4 * limits.eps * k,
            scale=lam,
        )

    # `guess` assumes that a uniform variable on (0, width) is subtracted from the entries. The variable of `F` has mean
    # 0 and, if it is logistic, the variance of a uniform one of this width; that of a Laplace variable is similar.

    width = 2 * jnp.pi * lam
    start, _ = guess((x,), k, width, equation, size)
    ends = End(float(limits.min), jnp.inf), End(float(limits.max), -jnp.inf)
    return find_root(evaluate, start + 0.5 * width, *ends).point


@_threshold.defjvp
def _threshold_jvp(distribution, primals, tangents):
    x, k, lam = primals
    x_dot, k_dot, lam_dot = tangents
    tau = _threshold(x, k, lam, distribution)
    t = _position(x, tau, lam)
    density = choose(x > -jnp.inf, distribution.density(t), 0.0)
    total = jnp.sum(density, axis=-1, keepdims=True)
    moved = jnp.sum(density * (x_dot - t * lam_dot), axis=-1, keepdims=True) - lam * k_dot
    # If all densities underflow, the mask is hard and locally constant.
    moves = total > 0
    tau_dot = choose(moves, moved / choose(moves, total, 1.0), 0.0)
    return tau, TwoFloat(jnp.zeros_like(tau.hi), tau_dot)


def _mask(x: Array, k: Array, lam: Array, *, distribution: _Distribution) -> Array:
    """Returns the mask of rows; if fewer than ``k`` entries are above ``-inf``, those get 1."""
    x = finite_above(x)
    available = jnp.sum(x > -jnp.inf, axis=-1, keepdims=True, dtype=x.dtype)
    tau = _threshold(x, choose(k > available, available, k), lam, distribution)
    return choose(x > -jnp.inf, distribution.cumulative(_position(x, tau, lam)), 0.0)


def _logistic_density(t: Array) -> Array:
    return jax.nn.sigmoid(t) * jax.nn.sigmoid(-t)


_LOGISTIC = _Distribution(jax.nn.sigmoid, _logistic_density)


def sigmoid_topk_mask(
    x: ArrayLike, k: ArrayLike, *, lam: ArrayLike = 1.0, axis: Axis = -1, where: ArrayLike | None = None
) -> Array:
    """Returns the dense relaxed top-k mask ``sigmoid((x - tau) / lam)`` that sums to ``k``.

    Source: Amos, Koltun and Kolter, "The Limited Multi-Label Projection Layer" (2019); Qian et al., "Multi-Vector
    Retrieval as Sparse Alignment" (2022). The first have ``lam = 1``, the second call it epsilon. Here ``tau`` is found
    as the root of one scalar equation, in a few passes over the data. ``lam -> inf`` gives ``k / n`` everywhere.

    Differentiable in ``x``, ``k`` and ``lam``, forwards and backwards. Takes O(n) time and memory; a new ``k`` or
    ``lam`` compiles nothing.

    Args:
      x: real array, any shape. Entries equal to ``-inf`` get 0 and leave the others as if they were absent; ``+inf``
        entries come first. A NaN makes its row NaN.
      k: how much is selected in total, a real number in ``(0, n)``; one number, or an array that broadcasts to one
        value per row.
      lam: strength of the relaxation, in the units of ``x``: 0 or in [1e-32, 1e32]; broadcasts like ``k``. 0 gives the
        hard mask, ties broken by index, with derivatives of 0; the last entry selected gets the remainder of a
        fractional ``k``. Towards 0, equal entries share. A traced ``lam`` that is out of range makes its row NaN.
      axis: the axis along which entries compete; a tuple of several, or ``None`` for all.
      where: boolean, broadcasts against ``x``. Entries that are False get 0, whatever their value.

    Returns:
      Array of the shape and dtype of ``x`` (integers are promoted to float), strictly between 0 and 1 up to rounding.
      Computed in float32 at least.

    Raises:
      ValueError: an argument known at trace time is out of range.

    See also:
      `sparse_topk.topk_mask`, which is sparse; `dftopk_mask` for a threshold in closed form.

    >>> (100 * sigmoid_topk_mask([1.0, 3.0, 2.0, 0.5], 2)).round()
    Array([35., 80., 60., 25.], dtype=float32)
    """
    return mask_rows(_mask, x, k, INSIDE_N, lam, axis, where=where, distribution=_LOGISTIC)


def entropic_ot_topk_mask(
    x: ArrayLike, k: ArrayLike, *, lam: ArrayLike = 1e-2, axis: Axis = -1, where: ArrayLike | None = None
) -> Array:
    """Returns a dense relaxed top-k mask by entropic optimal transport onto two targets.

    Source: Cuturi, Teboul and Vert, "Differentiable Ranks and Sorting using Optimal Transport" (NeurIPS 2019); Xie et
    al., "Differentiable Top-k with Optimal Transport" (NeurIPS 2020). The papers iterate Sinkhorn's algorithm; with two
    targets there is one unknown, which is found here in a few passes, as for ``sigmoid_topk_mask``. Entries are
    standardised first, so the mask depends on neither their location nor their scale. ``lam -> inf`` gives ``k / n``
    everywhere.

    ``lam`` is the strength of the entropy, in units of the squared distance between the two targets; both papers call
    it epsilon. Other arguments, derivatives, result and errors are as for ``sigmoid_topk_mask``.

    See also:
      `sparse_topk.topk_mask`, which is sparse; `sigmoid_topk_mask` without squashing.

    >>> (100 * entropic_ot_topk_mask([1.0, 3.0, 2.0, 0.5], 2, lam=0.1)).round()
    Array([  7., 100.,  92.,   1.], dtype=float32)
    """
    return mask_rows(_transported, x, k, INSIDE_N, lam, axis, where=where)


def _transported(x: Array, k: Array, lam: Array) -> Array:
    return _mask(_squash(x), k, lam, distribution=_LOGISTIC)


def _squash(x: Array) -> Array:
    """Returns rows in (-1, 1) by standardisation and the logistic map, as Cuturi et al. do; ``-inf`` stays ``-inf``."""
    present = x > -jnp.inf
    count = jnp.maximum(jnp.sum(present, axis=-1, keepdims=True, dtype=x.dtype), 1.0)
    x = finite(choose(present, x, 0.0))
    x = x / unit_of(x)  # cancels later; without it, squares over- or underflow
    centred = choose(present, x - jnp.sum(x, axis=-1, keepdims=True) / count, 0.0)
    scale = jnp.sqrt(jnp.sum(jnp.square(centred), axis=-1, keepdims=True) / count + jnp.finfo(x.dtype).tiny)
    return choose(present, 2.0 * jax.nn.sigmoid(centred / scale) - 1.0, -jnp.inf)


def _laplace_cumulative(t: Array) -> Array:
    below = t < 0  # two branches, each smooth where it is taken: the slope at 0 is 1 / 2
    return choose(below, 0.5 * jnp.exp(choose(below, t, 0.0)), 1.0 - 0.5 * jnp.exp(choose(below, 0.0, -t)))


def _laplace_density(t: Array) -> Array:
    return 0.5 * jnp.exp(choose(t < 0, t, -t))


_LAPLACE = _Distribution(_laplace_cumulative, _laplace_density)


def lapsum_topk_mask(
    x: ArrayLike, k: ArrayLike, *, lam: ArrayLike = 1.0, axis: Axis = -1, where: ArrayLike | None = None
) -> Array:
    """Returns a dense relaxed top-k mask by sums of Laplace distribution functions.

    Source: Struski, Bednarczyk, Podolak and Tabor, "LapSum - One Method to Differentiate Them All: Ranking, Sorting and
    Top-k Selection" (2025), which calls ``lam`` alpha. ``lam -> inf`` gives ``k / n`` everywhere. Arguments,
    derivatives, cost, result and errors are as for ``sigmoid_topk_mask``.

    See also:
      `sparse_topk.topk_mask`, which is sparse; `sigmoid_topk_mask` for the logistic distribution.

    >>> (100 * lapsum_topk_mask([1.0, 3.0, 2.0, 0.5], 2)).round()
    Array([28., 88., 67., 17.], dtype=float32)
    """
    return mask_rows(_mask, x, k, INSIDE_N, lam, axis, where=where, distribution=_LAPLACE)


def dftopk_mask(
    x: ArrayLike, k: ArrayLike, *, lam: ArrayLike = 1.0, axis: Axis = -1, where: ArrayLike | None = None
) -> Array:
    """Returns the dense relaxed top-k mask ``sigmoid((x - tau) / lam)`` with ``tau`` in closed form.

    Source: Zhu et al., "Differentiable Fast Top-K Selection for Large-Scale Recommendation" (2025). ``tau`` lies
    halfway between the ``k``-th largest entry and the next one. The mask does not sum to ``k``, and an entry other than
    these two moves no mask but its own. The paper calls ``lam`` a temperature. ``lam -> inf`` gives 1/2 everywhere.

    Differentiable in ``x`` and ``lam``, not in ``k``, which is a whole number in ``[0, n]``. Takes O(n) time and
    memory; a new ``k`` or ``lam`` compiles nothing. If there are at most ``k`` entries above ``-inf``, these get 1.
    Other arguments, result and errors are as for ``sigmoid_topk_mask``.

    See also:
      `sigmoid_topk_mask` for a mask that sums to ``k``; `sparse_topk.topk_mask` for one that is sparse, too.

    >>> (100 * dftopk_mask([1.0, 3.0, 2.0, 0.5], 2)).round()
    Array([38., 82., 62., 27.], dtype=float32)
    """
    return mask_rows(_halfway, x, k, WHOLE_UP_TO_N, lam, axis, where=where)


def _halfway(x: Array, k: Array, lam: Array) -> Array:
    x = finite_above(x)
    present = x > -jnp.inf
    selected = hard_selection((x,), k)[0] > 0
    next_ = present & ~selected
    least = jnp.min(choose(selected, x, jnp.inf), axis=-1, keepdims=True)
    largest = jnp.max(choose(next_, x, -jnp.inf), axis=-1, keepdims=True)
    both = jnp.isfinite(least) & jnp.isfinite(largest)
    tau = 0.5 * choose(both, least, 0.0) + 0.5 * choose(both, largest, 0.0)
    soft = jax.nn.sigmoid(_position(x, TwoFloat(tau, jnp.zeros_like(tau)), lam))
    return choose(present & both, soft, selected.astype(x.dtype))
