"""The relaxed top-k operators together with the solution of their isotonic problem."""

from jax import Array
from jax.typing import ArrayLike

from ..interface.arguments import POSITIVE_STRENGTH, UP_TO_N, Axis, check_p, floating
from ..interface.rowwise import ENTRIES, rowwise
from ..nonlinearities import Nonlinearity, nonlinearity
from .problem import Problem
from .selection import isotonic_topk
from .solvers import REPORT, Solution, Solver, SolverName, as_solver


def topk_solution(
    x: ArrayLike,
    k: ArrayLike,
    *,
    phi: str | Nonlinearity = "identity",
    lam: ArrayLike = 0.1,
    p: float = 2.0,
    axis: Axis = -1,
    solver: SolverName | Solver = "pav",
) -> tuple[Array, Solution]:
    """Returns ``relaxed_topk`` by an isotonic solver, and the solution, which says whether the solver converged.

    Args:
      x: as in ``ops.relaxed_topk``.
      k: as in ``ops.relaxed_topk``.
      phi: as in ``ops.relaxed_topk``.
      lam: as in ``ops.relaxed_topk``, but positive.
      p: as in ``ops.relaxed_topk``.
      axis: as in ``ops.relaxed_topk``.
      solver: ``"pav"``, ``"dykstra"``, ``"dual"``, or one of these classes with settings.

    Returns:
      The operator's value, and the solution of the isotonic problem with the iterations, residual and convergence of
      every row. Its entries are in descending order: of magnitude if ``phi`` is even, and shifted so that the k-th is 0
      if ``phi`` is the identity.

    Raises:
      ValueError: an argument known at trace time is out of range; the message names it and its value.

    >>> topk_solution([1.0, 3.0, 2.0], 2, lam=1.0)[1].converged
    Array(True, dtype=bool)
    """
    x, p = floating(x), check_p(p)
    if x.size == 0:
        raise ValueError(f"x must have at least one entry, got shape {x.shape}")
    return rowwise(
        _solved,
        x,
        axis=axis,
        per_row={"k": (k, UP_TO_N), "lam": (lam, POSITIVE_STRENGTH)},
        returns=(ENTRIES, REPORT),
        problem=Problem(p, nonlinearity(phi)),
        solver=as_solver(solver, p),
    )


def _solved(x: Array, k: Array, lam: Array, *, problem: Problem, solver: Solver) -> tuple[Array, Solution]:
    y, found = isotonic_topk(x, k, lam, problem, solver)
    return y, Solution(found.v.hi + found.v.lo, found.iterations, found.residual, found.converged)
