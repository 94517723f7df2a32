"""Sorting, ranking and projections as programs over the permutahedron (Blondel et al., 2020; Sander et al., 2023).

The permutahedron ``P(w)`` is the convex hull of all permutations of ``w``. A linear function is largest on it at a
permutation of ``w`` (Proposition 1); a regularised one is solved by isotonic optimisation (Proposition 5).
"""

from typing import Any

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from .arithmetic import choose
from .interface import (
    ROWS,
    SHARE,
    STRENGTH,
    Axis,
    check_entries,
    check_flag,
    check_p,
    check_values,
    floating,
    rowwise,
    working_dtype,
)
from .isotonic.problem import Problem, descending
from .isotonic.solvers import PAV, Solver, SolverName, as_solver, solve
from .nonlinearities import IDENTITY


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
        without ``axis``). At 0 the result is the weights in the order of ``x``, the largest for the first of equal
        entries, which maximises ``<x, y>`` (Proposition 1); its derivative in ``x`` is 0. Rows in which ``lam * w``
        overflows are NaN.
      p: exponent of the regularisation, a Python number in (1, 2].
      axis: the axis along which entries compete; a tuple of several, or ``None`` for all.
      solver: how the isotonic problem is solved, as in ``isotonic_regression``.

    Returns:
      Array of the shape and dtype of ``x`` (integers are promoted to float). Computed in float32 at least.

    Raises:
      ValueError: an argument known at trace time is out of range.

    See also:
      `topk_mask` for the weights of a top-k, much faster; `soft_sort` and `soft_rank`; `isotonic.isotonic_regression`,
      which solves it.

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
      x: real array, any shape. Infinite entries do not affect the others; ``-inf`` comes first, ``inf`` last, the other
        way round if ``descending``.
      lam: strength of the regularisation, 0 or in [1e-32, 1e32], in 1 / the units of ``x`` for ``p = 2``; a scalar, or
        one value per row. Rows in which ``lam * x`` overflows are NaN.
      descending: whether the largest comes first.
      where: boolean array, broadcasting against ``x``: entries that take part. The others count as ``-inf``.
      p, axis, solver: as in ``project_permutahedron``.

    Raises:
      ValueError: an argument known at trace time is out of range.

    See also:
      `soft_rank` for ranks; `soft_quantile` for a few of the values; `topk_mask` for the largest alone.

    >>> soft_sort([3.0, 1.0, 2.0], lam=2.0)
    Array([1.5, 2. , 2.5], dtype=float32)
    """
    return _operate(_sorted, x, lam, p, axis, solver, where=where, decreasing=check_flag("descending", descending))


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
      x: real array, any shape. Entries equal to ``-inf`` get 0 and leave the others as if they were absent; those
        equal to ``inf`` have the ranks of the largest, and no gradient.
      lam: strength of the regularisation, 0 or in [1e-32, 1e32], in the units of ``x`` for ``p = 2``; a scalar, or one
        value per row.
      descending: whether the largest entry has rank 1, as in the paper; by default the smallest one has.
      where: boolean array, broadcasting against ``x``: entries that take part. The others get 0, and no gradient.
      p, axis, solver: as in ``project_permutahedron``.

    Raises:
      ValueError: an argument known at trace time is out of range.

    See also:
      `soft_sort` for the values; `topk_mask` to select the largest.

    >>> soft_rank([3.0, 1.0, 2.0], lam=2.0)
    Array([2.5, 1.5, 2. ], dtype=float32)
    """
    return _operate(_ranked, x, lam, p, axis, solver, where=where, decreasing=check_flag("descending", descending))


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
    """Returns quantiles of the values of ``soft_sort``, interpolated linearly, and differentiable like them.

    Args:
      x: real array, any shape. Entries equal to ``-inf`` count as absent. A quantile beyond the last finite entry is
        ``inf`` if there are entries equal to ``inf``.
      q: the probability, in [0, 1]; or an array of several, of one axis, for all rows.
      lam: strength of the regularisation, as in ``soft_sort``. At 0 this is ``jax.numpy.quantile``.
      where: boolean array, broadcasting against ``x``: entries that take part. Without any, the result is NaN.
      p, axis, solver: as in ``project_permutahedron``.

    Returns:
      Array of the shape of ``x`` without ``axis``, and of its dtype (integers are promoted to float). Several ``q``
      have an axis of their own in front, as in ``jax.numpy.quantile``.

    Raises:
      ValueError: an argument known at trace time is out of range.

    See also:
      `soft_sort` for all values; `topk_threshold` for the threshold of a top-k.

    >>> float(soft_quantile([3.0, 1.0, 2.0, 8.0], 0.5, lam=0.125))
    2.5
    """
    x, q = floating(x), check_values("q", q, SHARE)
    check_entries("x", x, axis)
    if q.ndim > 1:
        raise ValueError(f"q must be a scalar or have one axis, got shape {q.shape}")
    places = {"q": jnp.asarray(q).astype(working_dtype(x.dtype)).reshape(-1)}
    quantiles = _operate(_quantiles, x, lam, p, axis, solver, where=where, constants=places, returns=(ROWS,) * q.size)
    return jnp.stack(quantiles) if q.ndim else quantiles[0]


def _operate(
    function, x: ArrayLike, lam: ArrayLike, p: float, axis: Axis, solver: SolverName | Solver, **options
) -> Any:
    p = check_p(p)
    return rowwise(
        function, x, axis=axis, per_row={"lam": (lam, STRENGTH)}, p=p, solver=as_solver(solver, p), **options
    )


def _projected(x: Array, w: Array, lam: Array, *, p: float, solver: Solver) -> Array:
    """Returns the projection of rows ``(rows, n)``; entries or weights of ``-inf`` come last, of ``inf`` first."""
    unknown = jnp.any(jnp.isnan(x) | jnp.isnan(w), axis=1, keepdims=True)
    problem = Problem(p, IDENTITY)
    s, in_place = descending(x)
    weights = -jnp.sort(-w, axis=1)
    absent = (s == -jnp.inf) | (weights == -jnp.inf)
    above = ((s == jnp.inf) | (weights == jnp.inf)) & ~absent
    s, w = (choose(absent | above, 0.0, value) for value in (s, weights))
    hard = lam == 0
    lam = choose(hard, 1.0, lam)
    if not isinstance(solver, PAV):
        s = _shorten_gaps(s, w, lam, problem)
    # Absent and infinite entries are put so far that no block contains both them and others.
    low = jnp.min(s - problem.gap(jnp.maximum(w, 0.0), lam), axis=1, keepdims=True)
    high = jnp.max(s - problem.gap(jnp.minimum(w, 0.0), lam), axis=1, keepdims=True)
    s = choose(absent, lax.stop_gradient(low - 1.0 - jnp.abs(low)), s)
    s = choose(above, lax.stop_gradient(high + 1.0 + jnp.abs(high)), s)

    solution = solve(problem, s, w, lam, solver)
    t = (s - solution.v.hi) - solution.v.lo
    alone = ~(solution.linked | jnp.roll(solution.linked, 1, axis=1)) | hard
    # If lam * w, or a sum of such terms, overflows, the result is wrong and becomes NaN.
    reach = problem.gap(jnp.max(jnp.abs(w), axis=1, keepdims=True), lam) * s.shape[1]
    finite = jnp.isfinite(choose(hard, 0.0, reach)) & ~unknown
    y = choose(alone, w, problem.dual(t, lam))
    return in_place(choose(finite, choose(absent | above, weights, y), jnp.nan))


def _shorten_gaps(s: Array, w: Array, lam: Array, problem: Problem) -> Array:
    """Returns decreasing ``s`` with gaps that no block crosses made short, for solvers with one float per entry.

    Since ``y`` lies between the least and the largest of ``w``, entries of a block differ by at most ``reach``.
    """
    constant = lax.stop_gradient(s)
    least, largest = (problem.gap(of(lax.stop_gradient(w), axis=1, keepdims=True), lam) for of in (jnp.min, jnp.max))
    reach = 2.0 * lax.stop_gradient(largest - least)
    drops = jnp.minimum(constant[:, :-1] - constant[:, 1:], reach)
    return (s - constant) - jnp.pad(jnp.cumsum(drops, axis=1), ((0, 0), (1, 0)))


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


def _quantiles(
    x: Array, q: Array, lam: Array, where: Array | None = None, *, p: float, solver: Solver
) -> tuple[Array, ...]:
    """Returns the quantiles ``q``, ``(m,)``, of rows ``(rows, n)``: ``m`` arrays ``(rows, 1)``."""
    present = x != -jnp.inf if where is None else where & (x != -jnp.inf)
    ordered = _sorted(x, lam, present, decreasing=False, p=p, solver=solver)
    count = jnp.sum(present, axis=1, keepdims=True, dtype=jnp.int32)

    place = q.reshape(1, -1) * (count - 1).astype(x.dtype)
    below = jnp.clip(jnp.floor(place).astype(jnp.int32), 0, jnp.maximum(count - 2, 0))
    part = place - below.astype(x.dtype)
    # Absent entries come first.
    last = x.shape[1] - 1
    first = jnp.minimum(last + 1 - count + below, last)
    low = jnp.take_along_axis(ordered, first, axis=1)
    high = jnp.take_along_axis(ordered, jnp.minimum(first + 1, last), axis=1)
    # A product of 0 and infinity would be NaN, in the derivative in q as well.
    finite = high < jnp.inf
    between = choose(finite, low, 0.0) * (1 - part) + choose(finite, high, 0.0) * part
    quantiles = choose(finite, between, choose(part > 0, high, low))
    return tuple(jnp.split(choose(count > 0, quantiles, jnp.nan), q.size, axis=1))
