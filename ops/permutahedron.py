"""Sorting, ranking and projections as programs over the permutahedron (Blondel et al., 2020; Sander et al., 2023).

The permutahedron ``P(w)`` is the convex hull of all permutations of ``w``. A linear function is largest on it at a
permutation of ``w`` (Proposition 1); a regularised one is solved by isotonic optimisation (Proposition 5).
"""

import functools

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from ops.arguments import check_axis, check_p, check_range, floating, per_row, working_dtype
from ops.isotonic.problem import Problem
from ops.isotonic.solvers import Solver, SolverName, as_solver, solve
from ops.layout import as_rows, batch_shape, descending
from ops.nonlinearities import IDENTITY


def lmo(x: ArrayLike, w: ArrayLike, *, axis: int = -1) -> Array:
    """``argmax <x, y>`` over the permutahedron ``P(w)``: the weights, sorted as ``x`` is (Proposition 1).

    Args:
      x: real array, any shape. Among equal entries the first gets the largest weight.
      w: real array that broadcasts against ``x``, in any order along ``axis``.
      axis: the axis that is permuted.

    Returns:
      Array of the shape and dtype of ``x`` (integers are promoted to float). Its derivative in ``x`` is 0.

    Raises:
      ValueError: an argument known at trace time is out of range; the message names it and its value.
    """
    return project_permutahedron(x, w, lam=0.0, axis=axis)


def project_permutahedron(
    x: ArrayLike,
    w: ArrayLike,
    *,
    lam: ArrayLike = 1.0,
    p: float = 2.0,
    axis: int = -1,
    solver: SolverName | Solver = "pav",
) -> Array:
    """``argmax <x, y> - lam / p * ||y||_p^p`` over ``y`` in the permutahedron ``P(w)`` (Proposition 2, ``phi(x) = x``).

    With ``p = 2`` and ``lam = 1`` this is the Euclidean projection of ``x``. ``w = (1, 0, ..., 0)`` gives the
    simplex, ``w = 1_k`` the relaxed top-k mask (for which ``topk_mask`` is much faster), ``w = (n, ..., 1)`` ranks.
    Differentiable in ``x``, ``w`` and ``lam``, in both modes (Proposition 7). O(n log n) time, O(n) memory.

    Args:
      x: finite real array, any shape.
      w: finite real array that broadcasts against ``x``, in any order along ``axis``, of any sign.
      lam: strength of the regularisation, >= 0 and finite; a scalar, or one value per row (the shape of ``x`` without
        ``axis``). At 0 a vertex of the polytope is returned, as by ``lmo``.
      p: exponent of the regularisation, a Python number in (1, 2].
      axis: the axis along which entries compete.
      solver: how the isotonic problem is solved, as in ``isotonic_regression``.

    Returns:
      Array of the shape and dtype of ``x`` (integers are promoted to float). Computed in float32 at least.

    Raises:
      ValueError: an argument known at trace time is out of range; the message names it and its value.
    """
    x, w = floating(x), floating(w, "w")
    axis = check_axis(axis, x.ndim)
    p = check_p(p)
    check_range("lam", lam, 0, float(jnp.finfo(jnp.float32).max), "finite and >= 0")
    shape = w.shape
    try:
        w = jnp.broadcast_to(w, x.shape)
    except ValueError:
        raise ValueError(f"w must broadcast to the shape of x, {x.shape}, got shape {shape}") from None
    solver = as_solver(solver, p)
    if x.size == 0:
        return x
    lam = per_row("lam", lam, batch_shape(x, axis), working_dtype(x.dtype))
    return _project(x, w, lam, p=p, axis=axis, solver=solver)


def soft_sort(
    x: ArrayLike,
    *,
    lam: ArrayLike = 1.0,
    p: float = 2.0,
    axis: int = -1,
    descending: bool = False,
    solver: SolverName | Solver = "pav",
) -> Array:
    """Differentiable sorted values: the projection of ``(n, ..., 1) / lam`` onto ``P(x)`` for ``p = 2``.

    ``lam -> 0`` gives the sorted values; for ``p = 2``, ``lam -> inf`` gives their mean everywhere and the sum is that
    of ``x`` always.

    Args:
      x: finite real array, any shape.
      lam: strength of the regularisation, >= 0 and finite, in 1 / the units of ``x`` for ``p = 2``; a scalar, or one
        value per row.
      p: exponent of the regularisation, a Python number in (1, 2].
      axis: the axis that is sorted.
      descending: whether the largest comes first.
      solver: how the isotonic problem is solved, as in ``isotonic_regression``.

    Returns:
      Array of the shape and dtype of ``x`` (integers are promoted to float).

    Raises:
      ValueError: an argument known at trace time is out of range; the message names it and its value.
    """
    x = floating(x)
    places = _places(x, check_axis(axis, x.ndim))
    ordered = project_permutahedron(-places if descending else places, x, lam=lam, p=p, axis=axis, solver=solver)
    return ordered.astype(x.dtype)


def soft_rank(
    x: ArrayLike,
    *,
    lam: ArrayLike = 1.0,
    p: float = 2.0,
    axis: int = -1,
    descending: bool = False,
    solver: SolverName | Solver = "pav",
) -> Array:
    """Differentiable ranks, from 1 to n: the projection of ``x / lam`` onto ``P((n, ..., 1))`` for ``p = 2``.

    ``lam -> 0`` gives the ranks (ties in the order of their index), ``lam -> inf`` gives ``(n + 1) / 2`` everywhere.

    Args:
      x: finite real array, any shape.
      lam: strength of the regularisation, >= 0 and finite, in the units of ``x`` for ``p = 2``; a scalar, or one value
        per row.
      p: exponent of the regularisation, a Python number in (1, 2].
      axis: the axis along which entries are ranked.
      descending: whether the largest has rank 1, as in the paper; by default the smallest has.
      solver: how the isotonic problem is solved, as in ``isotonic_regression``.

    Returns:
      Array of the shape and dtype of ``x`` (integers are promoted to float).

    Raises:
      ValueError: an argument known at trace time is out of range; the message names it and its value.
    """
    x = floating(x)
    places = _places(x, check_axis(axis, x.ndim))
    return project_permutahedron(-x if descending else x, places, lam=lam, p=p, axis=axis, solver=solver)


def soft_quantile(
    x: ArrayLike,
    q: ArrayLike,
    *,
    lam: ArrayLike = 1.0,
    p: float = 2.0,
    axis: int = -1,
    solver: SolverName | Solver = "pav",
) -> Array:
    """Differentiable quantile: that of the soft sorted values, interpolated linearly.

    Args:
      x: finite real array, any shape.
      q: the probability, a scalar in [0, 1].
      lam: strength of the regularisation, as in ``soft_sort``. At 0 this is ``jax.numpy.quantile``.
      p: exponent of the regularisation, a Python number in (1, 2].
      axis: the axis along which the quantile is taken.
      solver: how the isotonic problem is solved, as in ``isotonic_regression``.

    Returns:
      Array of the shape of ``x`` without ``axis``, and of its dtype (integers are promoted to float).

    Raises:
      ValueError: an argument known at trace time is out of range; the message names it and its value.
    """
    x = floating(x)
    axis = check_axis(axis, x.ndim)
    check_range("q", q, 0, 1, "in [0, 1]")
    ordered = jnp.moveaxis(soft_sort(x, lam=lam, p=p, axis=axis, solver=solver), axis, -1)
    place = jnp.asarray(q, ordered.dtype) * (x.shape[axis] - 1)
    below = jnp.clip(jnp.floor(place).astype(jnp.int32), 0, max(x.shape[axis] - 2, 0))
    above = jnp.minimum(below + 1, x.shape[axis] - 1)
    part = place - below.astype(ordered.dtype)
    return ordered[..., below] * (1 - part) + ordered[..., above] * part


def _places(x: Array, axis: int) -> Array:
    """``1, ..., n`` along ``axis``."""
    return lax.broadcasted_iota(working_dtype(x.dtype), x.shape, axis) + 1


@functools.partial(jax.jit, static_argnames=("p", "axis", "solver"))
def _project(x: Array, w: Array, lam: Array, *, p: float, axis: int, solver: Solver) -> Array:
    entries, restore = as_rows(x, axis, lam.dtype)
    weights, _ = as_rows(w, axis, lam.dtype)
    s, in_place = descending(entries)
    w = -jnp.sort(-weights, axis=1)
    # The solution is that of any shifted x; one in the middle of the entries loses the least to rounding.
    half = s.shape[1] // 2
    s = s - lax.stop_gradient(s[:, half : half + 1])

    hard = lam == 0
    lam = jnp.where(hard, 1.0, lam)
    problem = Problem(p, IDENTITY)
    found = solve(problem, s, w, lam, solver, nonnegative=False)
    t = (s - found.v.hi) - found.v.lo
    alone = ~(found.linked | jnp.roll(found.linked, 1, axis=1)) | hard
    y = jnp.where(alone, w, problem.dual(t, lam))
    return restore(in_place(y))
