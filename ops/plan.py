"""The relaxed top-k mask of every row of a matrix, with limits on the sums of its columns."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from . import interface
from .arithmetic import choose
from .interface import ENTRIES, FULL_PRECISION_ROWS, ROWS, Range, broadcast, exportable, rowwise
from .marginals import Problem, solve

_COUNT = Range("at least 1", 1, integer=True)
_LIMIT = Range(">= 0", 0)
# By what share rows may ask for more than columns take, since both are rounded.
_SLACK = 1e-3


@exportable
class TopkPlan(NamedTuple):
    """A plan, with the final state of the solver.

    Attributes:
      plan: the plan, in the shape and dtype of the scores.
      iterations: int32, the number of iterations; like the fields below, one value per matrix, in the shape of the
        scores without their ``axis``.
      residual: in units of the plan, the largest amount by which the sum of a row misses ``k``, that of a column
        exceeds ``limit``, or that of a column with a binding ``limit`` misses it.
      converged: bool, whether the residual is within the tolerance.

    See also:
      `topk_plan`, which returns it.
    """

    plan: Array
    iterations: Array
    residual: Array
    converged: Array


def topk_plan(
    x: ArrayLike,
    k: ArrayLike,
    limit: ArrayLike,
    *,
    lam: ArrayLike = 0.1,
    p: float = 2.0,
    axis: tuple[int, int] = (-2, -1),
    where: ArrayLike | None = None,
    max_iter: int = 200,
    tol: ArrayLike | None = None,
) -> TopkPlan:
    """Returns the relaxed top-k mask of every row of a matrix, with columns that sum to at most ``limit``.

    For example, experts take ``k`` tokens each, and a token goes to at most ``limit`` experts. The plan solves
    ``max_T <x, T> - lam / p * ||T||_p^p`` over ``0 <= T <= 1`` under these two constraints. If no limit binds, it is
    ``topk_mask(x, k)``. ``lam -> 0`` gives a matching; a positive ``lam`` gives a transport plan regularised as in
    Blondel, Seguy and Rolet (2018), sparse like those of Liu, Puigcerver and Blondel (2023). An interior-point method
    comes first, then Newton's method, each step followed by the scalar equations of all columns and all rows
    (block-coordinate ascent of the dual), until all sums are within ``tol``.

    Differentiable in ``x``, ``k``, ``limit`` and ``lam``, forwards and backwards, to any order, by the implicit
    function theorem: conjugate gradients solve a symmetric linear system with one unknown per row. Without convergence
    the derivatives are as inexact as the plan. If all limits bind, ``k`` and ``limit`` can only change together. The
    derivative in ``k`` is 0 in rows that select nothing in part. Takes O(m n) memory for a matrix ``(m, n)``, and
    O(m n min(m, n)) time for an iteration.

    Args:
      x: real array of at least two dimensions. Entries equal to ``-inf`` get 0 and leave the others as if they were
        absent; ``+inf`` and NaN make their matrix NaN.
      k: how much is selected in a row: a real number in ``[0, n]``; one number, or an array that broadcasts to one
        value per row (the shape of ``x`` without the second ``axis``). If fewer entries take part, all are selected.
      limit: the largest sum of a column, >= 0, or ``inf``; one number, or an array that broadcasts to one value per
        column.
      lam: strength of the relaxation, in [1e-32, 1e32], in the units of ``x``; one number, or one per matrix.
      p: exponent of the regularisation, a Python number in (1, 2].
      axis: two axes: the first indexes rows, the second columns, which compete within a row.
      where: boolean array, broadcasting against ``x``: entries that take part. The others get 0, and no gradient.
      max_iter: the most iterations. Problems take 5 to 40, even with ties, tight limits, or a ``lam`` far below the
        scores. An infeasible problem takes all, and so may one whose ``k`` is just below ``n`` (2.999 of 3 in float32).
      tol: residual at which a matrix has converged; default 1e-4 in float32, 1e-9 in float64. The rounding error is
        about ``eps * max(k, limit)``, whatever the ratio of scores to ``lam``.

    Returns:
      A ``TopkPlan``. It is not converged if the problem is infeasible (as for ``m * k > n * limit``) or ``max_iter``
      too small; then rows sum to ``k``, and columns exceed their limit.

    Raises:
      ValueError: an argument known at trace time is out of range, or ``k`` and ``limit`` are known and columns take
        less than rows select (for a traced ``x``, all entries count as present that ``where`` does not exclude).

    See also:
      `topk_mask` without limits on columns; `knapsack_mask` for costs and caps of entries.

    >>> topk_plan([[3.0, 2.0, 0.0], [3.0, 1.0, 0.0]], 1, 1, lam=0.1).plan
    Array([[0., 1., 0.],
           [1., 0., 0.]], dtype=float32)
    """
    x = interface.floating(x)
    if not (isinstance(axis, tuple) and len(axis) == 2):
        raise ValueError(f"axis must be two integers, got {interface.shown(axis)}")
    interface.check_axes(axis, x.ndim)
    row, column = (index % x.ndim for index in axis)
    dtype = interface.working_dtype(x.dtype)
    if tol is None:
        tol = 1e-9 if dtype == jnp.float64 else 1e-4
    k = interface.check_values("k", k, interface.UP_TO_N, x.shape[column], column, dtype)
    limit = interface.check_values("limit", limit, _LIMIT)
    k, limit = _spread(k, x, column, "k"), _spread(limit, x, row, "limit")
    if all(map(interface.known, (k, limit, where))):
        _check_room(np.asarray(k), np.asarray(limit), x, where, row, column)
    return rowwise(
        _plans,
        x,
        axis=axis,
        aligned={"k": k, "limit": limit},
        per_row={
            "lam": (lam, interface.POSITIVE_STRENGTH),
            "max_iter": (interface.check_whole("max_iter", max_iter, 1, 2**31 - 1, "at least 1"), _COUNT),
            "tol": (tol, interface.NON_NEGATIVE),
        },
        where=where,
        returns=TopkPlan(ENTRIES, ROWS, FULL_PRECISION_ROWS, ROWS),
        p=interface.check_p(p),
        # A matrix without entries is traced with one entry.
        shape=(max(x.shape[min(row, column)], 1), max(x.shape[max(row, column)], 1)),
        turned=column < row,
    )


def _spread(value: Array | np.ndarray, x: Array, axis: int, name: str) -> Array | np.ndarray:
    """Returns one value per row (or column) with an axis of size 1 in place of ``axis``."""
    value = broadcast(value, interface.batch_shape(x, (axis,)), name, f"x without axis {axis}")
    return value.reshape(*x.shape[:axis], 1, *x.shape[axis + 1 :])


def _check_room(k: np.ndarray, limit: np.ndarray, x: Array, where: ArrayLike | None, row: int, column: int) -> None:
    """Checks that columns take what rows select. Looks at entries only if they do not without absent ones."""

    def sums(present: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        counts = (np.sum(present, axis=axis, keepdims=True) for axis in (column, row))
        selected, taken = (np.minimum(value, count) for value, count in zip((k, limit), counts, strict=True))
        return selected.sum(axis=(row, column)), taken.sum(axis=(row, column))

    def lacking(sums: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        return sums[0] > sums[1] * (1 + _SLACK)

    every = np.broadcast_to(True, x.shape)
    if not np.any(lacking(sums(every))):
        return
    present = every if where is None else every & np.asarray(interface.check_where(where))
    totals = sums(present & (np.asarray(x) != -np.inf) if interface.known(x) else present)
    if np.any(lacking(totals)):
        at = np.flatnonzero(lacking(totals))[0]
        selected, taken = (float(total.flat[at]) for total in totals)
        raise ValueError(
            f"limit must let columns take the {selected:g} that rows select, got limits of {taken:g} in all"
        )


def _plans(
    x: Array,
    *,
    k: Array,
    limit: Array,
    lam: Array,
    where: Array | None = None,
    p: float,
    shape: tuple[int, int],
    turned: bool,
    max_iter: Array,
    tol: Array,
) -> TopkPlan:
    """Returns the plans of matrices that are flattened to rows; ``turned`` says that columns are their first axis."""

    def matrices(value: Array) -> Array:
        value = value.reshape(len(x), *shape)
        return jnp.swapaxes(value, 1, 2) if turned else value

    scores = matrices(x if where is None else choose(where, x, -jnp.inf))
    available = jnp.sum((scores != -jnp.inf).astype(x.dtype), axis=2, keepdims=True)
    wanted = jnp.minimum(matrices(k)[:, :, :1], available)
    # No column sums to more than the number of its rows.
    limits = jnp.minimum(matrices(limit)[:, :1], scores.shape[1] + 1.0)
    problem = Problem(scores, wanted, limits, lam[:, :, None])
    plan, iterations, residual = solve(problem, p, max_iter[:, :, None].astype(jnp.int32), tol[:, :, None])
    plan = jnp.swapaxes(plan, 1, 2) if turned else plan
    return TopkPlan(plan.reshape(x.shape), iterations, residual, residual <= tol)
