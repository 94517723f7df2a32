"""The relaxed top-k operators with a report of how the isotonic problem was solved."""

import functools

import jax
from jax import Array
from jax.typing import ArrayLike

from ops.arguments import check_axis, check_p, check_range, floating, per_row, working_dtype
from ops.isotonic.problem import Problem
from ops.isotonic.selection import isotonic_topk
from ops.isotonic.solvers import Solution, Solver, SolverName, as_solver
from ops.layout import as_rows, batch_shape
from ops.nonlinearities import Nonlinearity, nonlinearity


def topk_solution(
    x: ArrayLike,
    k: ArrayLike,
    *,
    phi: str | Nonlinearity = "identity",
    lam: ArrayLike = 0.1,
    p: float = 2.0,
    axis: int = -1,
    solver: SolverName | Solver = "pav",
) -> tuple[Array, Solution]:
    """``relaxed_topk`` by an isotonic solver, and what that solver found: so that a run not converged can be seen.

    Args:
      x: as in ``ops.relaxed_topk``.
      k: as there.
      phi: as there.
      lam: as there, but positive.
      p: as there.
      axis: as there.
      solver: ``"pav"``, ``"dykstra"``, ``"dual"``, or one of these with settings of its own.

    Returns:
      The operator's value, and the solution of the isotonic problem of the entries in descending order (of
      magnitude, if ``phi`` is even; shifted to 0 at the k-th of them, if it is the identity) with the iterations,
      the residual and the convergence of every row.

    Raises:
      ValueError: an argument known at trace time is out of range; the message names it and its value.
    """
    x = floating(x)
    p = check_p(p)
    axis = check_axis(axis, x.ndim)
    n = x.shape[axis]
    check_range("k", k, 0, n, f"in [0, {n}], the size along axis {axis}")
    check_range("lam", lam, 1e-37, 3e38, "positive and finite")
    solver = as_solver(solver, p)
    if x.size == 0:
        raise ValueError(f"x must have at least one entry, got shape {x.shape}")
    batch, dtype = batch_shape(x, axis), working_dtype(x.dtype)
    strengths = per_row("lam", lam, batch, dtype)
    return _compiled(
        x, per_row("k", k, batch, dtype), strengths, problem=Problem(p, nonlinearity(phi)), axis=axis, solver=solver
    )


@functools.partial(jax.jit, static_argnames=("problem", "axis", "solver"))
def _compiled(x: Array, k: Array, lam: Array, *, problem: Problem, axis: int, solver: Solver) -> tuple[Array, Solution]:
    entries, restore = as_rows(x, axis, lam.dtype)
    y, found = isotonic_topk(entries, k, lam, problem, solver)
    report = (value.reshape(batch_shape(x, axis)) for value in (found.iterations, found.residual, found.converged))
    return restore(y), Solution(restore(found.v.hi + found.v.lo), *report)
