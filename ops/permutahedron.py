"""Sorting, ranking and projections as programs over the permutahedron (Blondel et al., 2020; Sander et al., 2023).

The permutahedron ``P(w)`` is the convex hull of all permutations of ``w``. A linear function is largest on it at a
permutation of ``w`` (Proposition 1); a regularised one is solved by isotonic optimisation (Proposition 5).
"""

from typing import Any

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from .interface import ROWS, SHARE, STRENGTH, Axis, check_axes, check_p, floating, rowwise, size_along
from .isotonic.problem import Problem, descending
from .isotonic.solvers import Solver, SolverName, as_solver, solve
from .nonlinearities import IDENTITY
from .scalar.arithmetic import choose


def lmo(x: ArrayLike, w: ArrayLike, *, axis: Axis = -1) -> Array:
    """Returns the weights in the order of ``x``, which is ``argmax <x, y>`` over ``y`` in ``P(w)`` (Proposition 1).

    Args:
      x: real array, any shape. Among equal entries the first gets the largest weight.
      w: real array that broadcasts against ``x``, in any order along ``axis``.
      axis: the axis that is permuted; a tuple of several, or ``None`` for all.

    Returns:
      Array of the shape and dtype of ``x`` (integers are promoted to float). Its derivative in ``x`` is 0.

    Raises:
      ValueError: an argument known at trace time is out of range.

    >>> lmo([0.3, 2.0, 1.0], [3.0, 2.0, 1.0])
    Array([1., 3., 2.], dtype=float32)
    """
    return project_permutahedron(x, w, lam=0.0, axis=axis)


def project_permutahedron(
    x: ArrayLike,
    w: ArrayLike,
    *,
    lam: ArrayLike = 1.0,
    p: float = 2.0,
    axis: Axis = -1,
    solver: SolverName | Solver = "pav",
) -> Array:
    """Returns the regularised projection of ``x`` onto the permutahedron ``P(w)``.

    It is ``argmax <x, y> - lam / p * ||y||_p^p`` over ``y`` in ``P(w)`` (Proposition 2 with ``phi(x) = x``): with
    ``p = 2`` and ``lam = 1`` the Euclidean projection. ``w = (1, 0, ..., 0)`` gives the simplex, ``w = 1_k`` the
    relaxed top-k mask (for which ``topk_mask`` is much faster), ``w = (n, ..., 1)`` ranks. Differentiable in ``x``,
    ``w`` and ``lam``, in both modes (Proposition 7). Takes O(n log n) time and O(n) memory.

    Args:
      x: finite real array, any shape.
      w: finite real array that broadcasts against ``x``, in any order along ``axis``, of any sign.
      lam: strength of the regularisation, 0 or in [1e-32, 1e32]; a scalar, or one value per row (the shape of ``x``
        without ``axis``). At 0 the result is a vertex of the polytope, as for ``lmo``. Rows in which ``lam * w``
        overflows are NaN.
      p: exponent of the regularisation, a Python number in (1, 2].
      axis: the axis along which entries compete; a tuple of several, or ``None`` for all.
      solver: how the isotonic problem is solved, as in ``isotonic_regression``.

    Returns:
      Array of the shape and dtype of ``x`` (integers are promoted to float). Computed in float32 at least.

    Raises:
      ValueError: an argument known at trace time is out of range.

    >>> project_permutahedron([0.5, 1.0, 0.75], [3.0, 2.0, 1.0])
    Array([1.75, 2.25, 2.  ], dtype=float32)
    """
    return _operate(_projected, x, lam, p, axis, solver, aligned={"w": floating(w, "w")})


def soft_sort(
    x: ArrayLike,
    *,
    lam: ArrayLike = 1.0,
    p: float = 2.0,
    axis: Axis = -1,
    descending: bool = False,
    where: ArrayLike | None = None,
    solver: SolverName | Solver = "pav",
) -> Array:
    """Returns softly sorted values: for ``p = 2`` the projection of ``(n, ..., 1) / lam`` onto ``P(x)``.

    ``lam -> 0`` gives the sorted values. For ``p = 2``, ``lam -> inf`` gives their mean everywhere, and the sum is that
    of ``x`` for every ``lam``. Shape, dtype and derivatives are as for ``project_permutahedron``.

    Args:
      x: real array, any shape. Entries equal to ``-inf`` do not affect the others; they come first, or last if
        ``descending``.
      lam: strength of the regularisation, 0 or in [1e-32, 1e32], in 1 / the units of ``x`` for ``p = 2``; a scalar, or
        one value per row. Rows in which ``lam * x`` overflows are NaN.
      descending: whether the largest comes first.
      where: boolean array, broadcasting against ``x``: entries that take part. The others count as ``-inf``.
      p, axis, solver: as in ``project_permutahedron``.

    Raises:
      ValueError: an argument known at trace time is out of range.

    >>> soft_sort([3.0, 1.0, 2.0], lam=2.0)
    Array([1.5, 2. , 2.5], dtype=float32)
    """
    return _operate(_sorted, x, lam, p, axis, solver, where=where, decreasing=bool(descending))


def soft_rank(
    x: ArrayLike,
    *,
    lam: ArrayLike = 1.0,
    p: float = 2.0,
    axis: Axis = -1,
    descending: bool = False,
    where: ArrayLike | None = None,
    solver: SolverName | Solver = "pav",
) -> Array:
    """Returns soft ranks from 1 to n: for ``p = 2`` the projection of ``x / lam`` onto ``P((n, ..., 1))``.

    ``lam -> 0`` gives the ranks (ties in the order of their index), ``lam -> inf`` gives ``(n + 1) / 2`` everywhere.
    Shape, dtype and derivatives are as for ``project_permutahedron``.

    Args:
      x: real array, any shape. Entries equal to ``-inf`` get 0 and leave the others as if they were absent.
      lam: strength of the regularisation, 0 or in [1e-32, 1e32], in the units of ``x`` for ``p = 2``; a scalar, or one
        value per row.
      descending: whether the largest entry has rank 1, as in the paper; by default the smallest one has.
      where: boolean array, broadcasting against ``x``: entries that take part. The others get 0, and no gradient.
      p, axis, solver: as in ``project_permutahedron``.

    Raises:
      ValueError: an argument known at trace time is out of range.

    >>> soft_rank([3.0, 1.0, 2.0], lam=2.0)
    Array([2.5, 1.5, 2. ], dtype=float32)
    """
    return _operate(_ranked, x, lam, p, axis, solver, where=where, decreasing=bool(descending))


def soft_quantile(
    x: ArrayLike,
    q: ArrayLike,
    *,
    lam: ArrayLike = 1.0,
    p: float = 2.0,
    axis: Axis = -1,
    where: ArrayLike | None = None,
    solver: SolverName | Solver = "pav",
) -> Array:
    """Returns a quantile of the values of ``soft_sort``, interpolated linearly, and differentiable like them.

    Args:
      x: real array, any shape. Entries equal to ``-inf`` count as absent.
      q: the probability, in [0, 1]: a scalar, or one value per row.
      lam: strength of the regularisation, as in ``soft_sort``. At 0 this is ``jax.numpy.quantile``.
      where: boolean array, broadcasting against ``x``: entries that take part. Without any, the result is NaN.
      p, axis, solver: as in ``project_permutahedron``.

    Returns:
      Array of the shape of ``x`` without ``axis``, and of its dtype (integers are promoted to float).

    Raises:
      ValueError: an argument known at trace time is out of range.

    >>> float(soft_quantile([3.0, 1.0, 2.0, 8.0], 0.5, lam=0.125))
    2.5
    """
    x = floating(x)
    if size_along(x.shape, check_axes(axis, x.ndim)) == 0:
        raise ValueError(f"x must have at least one entry along axis {axis}, got shape {x.shape}")
    return _operate(_quantile, x, lam, p, axis, solver, per_row={"q": (q, SHARE)}, where=where, returns=ROWS)


def _operate(
    function, x: ArrayLike, lam: ArrayLike, p: float, axis: Axis, solver: SolverName | Solver, **options
) -> Any:
    p = check_p(p)
    per_row = {"lam": (lam, STRENGTH)} | options.pop("per_row", {})
    return rowwise(function, x, axis=axis, per_row=per_row, p=p, solver=as_solver(solver, p), **options)


def _projected(x: Array, w: Array, lam: Array, *, p: float, solver: Solver) -> Array:
    """Returns the projection of rows ``(rows, n)``; entries or weights of ``-inf`` come last."""
    unknown = jnp.any(jnp.isnan(x) | jnp.isnan(w), axis=1, keepdims=True)
    problem = Problem(p, IDENTITY)
    s, in_place = descending(x)
    weights = -jnp.sort(-w, axis=1)
    absent = (s == -jnp.inf) | (weights == -jnp.inf)
    s, w = choose(absent, 0.0, s), choose(absent, 0.0, weights)
    # A shift of x does not change the solution; shifting a middle entry to 0 loses the least to rounding.
    half = jnp.sum(~absent, axis=1, keepdims=True) // 2
    s = s - lax.stop_gradient(jnp.take_along_axis(s, jnp.minimum(half, s.shape[1] - 1), axis=1))
    # Absent entries are put so low that no block contains both them and others.
    low = s - problem.gap(jnp.maximum(w, 0.0), choose(lam == 0, 1.0, lam))
    low = jnp.min(choose(absent, 0.0, low), axis=1, keepdims=True)
    s = choose(absent, lax.stop_gradient(low - 1.0 - jnp.abs(low)), s)

    hard = lam == 0
    lam = choose(hard, 1.0, lam)
    found = solve(problem, s, w, lam, solver)
    t = (s - found.v.hi) - found.v.lo
    alone = ~(found.linked | jnp.roll(found.linked, 1, axis=1)) | hard
    # If lam * w, or a sum of such terms, overflows, the result is wrong and becomes NaN.
    reach = problem.gap(jnp.max(jnp.abs(w), axis=1, keepdims=True), lam) * s.shape[1]
    finite = jnp.isfinite(choose(hard, 0.0, reach)) & ~unknown
    y = choose(alone, w, problem.dual(t, lam))
    return in_place(choose(finite, choose(absent, weights, y), jnp.nan))


def _one_to_n(x: Array) -> Array:
    """Returns ``1, ..., n`` in each row."""
    return lax.broadcasted_iota(x.dtype, x.shape, 1) + 1


def _sorted(x: Array, lam: Array, where: Array | None = None, *, decreasing: bool, p: float, solver: Solver) -> Array:
    entries = x if where is None else choose(where, x, -jnp.inf)
    return _projected(-_one_to_n(x) if decreasing else _one_to_n(x), entries, lam, p=p, solver=solver)


def _ranked(x: Array, lam: Array, where: Array | None = None, *, decreasing: bool, p: float, solver: Solver) -> Array:
    present = x != -jnp.inf if where is None else where & (x != -jnp.inf)
    absent = jnp.sum(~present, axis=1, keepdims=True, dtype=jnp.int32).astype(x.dtype)
    entries = choose(present, -x if decreasing else x, -jnp.inf)
    return _projected(entries, jnp.maximum(_one_to_n(x) - absent, 0.0), lam, p=p, solver=solver)


def _quantile(x: Array, q: Array, lam: Array, where: Array | None = None, *, p: float, solver: Solver) -> Array:
    present = x != -jnp.inf if where is None else where & (x != -jnp.inf)
    ordered = _sorted(x, lam, present, decreasing=False, p=p, solver=solver)
    count = jnp.sum(present, axis=1, keepdims=True, dtype=jnp.int32)

    place = q * (count - 1).astype(x.dtype)
    below = jnp.clip(jnp.floor(place).astype(jnp.int32), 0, jnp.maximum(count - 2, 0))
    part = place - below.astype(x.dtype)
    # Absent entries come first.
    last = x.shape[1] - 1
    first = jnp.minimum(last + 1 - count + below, last)
    low = jnp.take_along_axis(ordered, first, axis=1)
    high = jnp.take_along_axis(ordered, jnp.minimum(first + 1, last), axis=1)
    return choose(count > 0, low * (1 - part) + high * part, jnp.nan)
