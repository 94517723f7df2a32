"""Isotonic regression with general weights, for arrays of any shape."""

import numpy as np
from jax import Array
from jax.typing import ArrayLike

from ..interface import POSITIVE_STRENGTH, Axis, check_p, floating, known, rowwise
from ..nonlinearities import Nonlinearity, nonlinearity
from .problem import Problem
from .solvers import REPORT, Solution, Solver, SolverName, as_solver, solve


def isotonic_regression(
    s: ArrayLike,
    w: ArrayLike,
    *,
    lam: ArrayLike = 1.0,
    p: float = 2.0,
    phi: str | Nonlinearity = "identity",
    axis: Axis = -1,
    nonnegative: bool | None = None,
    solver: SolverName | Solver = "pav",
) -> Solution:
    """Returns the solution of ``min sum_i r*(s_i - v_i) + w_i phi(v_i)`` over decreasing ``v``.

    This is equation 5 of Sander et al. (2023), with ``r*(t) = lam ** (1 - q) |t| ** q / q`` the conjugate of
    ``lam / p |y| ** p``. If ``s`` and ``w`` are sorted in decreasing order, ``y_i = (r*)'(s_i - v_i)`` is the relaxed
    operator of Proposition 2 (Propositions 5 and 6). With ``w = 0``, ``p = 2`` and ``lam = 1`` it is isotonic
    regression of ``s``.

    Differentiable in ``s``, ``w`` and ``lam``, in both modes and to any order, in closed form block by block
    (Proposition 7). If the solver has not converged, the derivative is that of the blocks found so far.

    Args:
      s: finite real array, any shape.
      w: weights, real, broadcasting against ``s``. Not negative, unless ``phi`` is ``"identity"`` or ``"abs"``.
      lam: strength of the regularisation, positive; a scalar, or one value per row (the shape of ``s`` without
        ``axis``).
      p: exponent of the regularisation, a Python number in (1, 2].
      phi: the nonlinearity, or its name: ``"identity"``, ``"abs"``, ``"half_square"``, ``"exp"``, or a registered one.
      axis: the axis along which ``v`` decreases; a tuple of several, or ``None`` for all.
      nonnegative: whether ``v >= 0`` as well; by default for an even ``phi`` (Proposition 6), whose ``s`` then have
        to be magnitudes.
      solver: ``"pav"`` (exact), ``"dykstra"`` (``p = 2`` only), ``"dual"``, or one of these with settings of its own,
        like ``Dykstra(max_iter=10, tol=0.0)``.

    Returns:
      A ``Solution`` in the shape and dtype of ``s`` (integers are promoted to float; computed in float32 at least). If
      gaps between entries, divided by ``lam`` and raised to the power ``1 / (p - 1)``, overflow (in float32 from 12
      ``lam`` on for ``p = 1.02``, from 1.4e13 ``lam`` on for ``p = 4/3``), rows that PAV cannot put in order are NaN.

    Raises:
      ValueError: an argument known at trace time is out of range.

    >>> isotonic_regression([1.0, 3.0, 2.0], [0.0, 0.0, 0.0]).v
    Array([2., 2., 2.], dtype=float32)
    """
    s, w, phi = floating(s, "s"), floating(w, "w"), nonlinearity(phi)
    problem = Problem(check_p(p), phi)
    if not problem.linear and known(w) and np.any(np.asarray(w) < 0):
        raise ValueError(f"w must not be negative for phi={phi.name!r}, got {np.min(np.asarray(w))}")
    if s.size == 0:
        raise ValueError(f"s must have at least one entry, got shape {s.shape}")
    return rowwise(
        _solved,
        s,
        axis=axis,
        name="s",
        aligned={"w": w},
        per_row={"lam": (lam, POSITIVE_STRENGTH)},
        returns=REPORT,
        problem=problem,
        nonnegative=phi.even if nonnegative is None else bool(nonnegative),
        solver=as_solver(solver, problem.p),
    )


def _solved(s: Array, w: Array, lam: Array, *, problem: Problem, nonnegative: bool, solver: Solver) -> Solution:
    return solve(problem, s, w, lam, solver, nonnegative).report()
