"""The isotonic problem for general weights, as a function of arrays of any shape."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from ops.arguments import check_axis, check_p, check_range, floating, known, per_row, working_dtype
from ops.isotonic.problem import Problem
from ops.isotonic.solvers import Solution, Solver, SolverName, as_solver, solve
from ops.layout import as_rows, batch_shape
from ops.nonlinearities import Nonlinearity, nonlinearity


def isotonic_regression(
    s: ArrayLike,
    w: ArrayLike,
    *,
    lam: ArrayLike = 1.0,
    p: float = 2.0,
    phi: str | Nonlinearity = "identity",
    axis: int = -1,
    nonnegative: bool | None = None,
    solver: SolverName | Solver = "pav",
) -> Solution:
    """Solves ``min sum_i r*(s_i - v_i) + w_i phi(v_i)`` over decreasing ``v`` (equation 5 of Sander et al., 2023).

    ``r*(t) = lam ** (1 - q) |t| ** q / q`` is the conjugate of ``lam / p |y| ** p``. The relaxed operator of
    Proposition 2 is ``y_i = (r*)'(s_i - v_i)`` where ``s`` and ``w`` are sorted in decreasing order (Propositions 5
    and 6), but neither has to be. With ``w = 0``, ``p = 2`` and ``lam = 1`` this is isotonic regression of ``s``.

    Differentiable in ``s``, ``w`` and ``lam``, in both modes and to any order, in closed form block by block
    (Proposition 7). After a solver that has not converged the derivative is that of the blocks it had found.

    Args:
      s: real array, any shape; finite.
      w: weights, real, broadcasting against ``s``. Not negative, unless ``phi`` is ``"identity"`` or ``"abs"``.
      lam: strength of the regularisation, positive; a scalar, or one value per row (the shape of ``s`` without
        ``axis``).
      p: exponent of the regularisation, a Python number in (1, 2].
      phi: the nonlinearity, or its name: ``"identity"``, ``"abs"``, ``"half_square"``, ``"exp"``, or a registered one.
      axis: the axis along which ``v`` decreases.
      nonnegative: whether ``v >= 0`` as well; by default for an even ``phi`` (Proposition 6), whose ``s`` then have
        to be magnitudes.
      solver: ``"pav"`` (exact), ``"dykstra"`` (``p = 2`` only), ``"dual"``, or one of these with settings of its own,
        like ``Dykstra(max_iter=10, tol=0.0)``.

    Returns:
      The solution, in the shape and dtype of ``s`` (integers are promoted to float; computed in float32 at least),
      with the iterations it took, its residual, and whether it has converged.

    Raises:
      ValueError: an argument known at trace time is out of range; the message names it and its value.
    """
    s = floating(s, "s")
    phi = nonlinearity(phi)
    problem = Problem(check_p(p), phi)
    axis = check_axis(axis, s.ndim)
    check_range("lam", lam, float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max), "positive and finite")
    if not problem.linear and known(w) and np.any(np.asarray(w) < 0):
        raise ValueError(f"w must not be negative for phi={phi.name!r}, got {np.min(np.asarray(w))}")
    try:
        w = jnp.broadcast_to(floating(w, "w"), s.shape)
    except ValueError:
        raise ValueError(f"w must broadcast to the shape of s, {s.shape}, got shape {np.shape(w)}") from None
    if s.size == 0:
        raise ValueError(f"s must have at least one entry, got shape {s.shape}")
    return _compiled(
        s,
        w,
        per_row("lam", lam, batch_shape(s, axis), working_dtype(s.dtype)),
        problem=problem,
        axis=axis,
        nonnegative=phi.even if nonnegative is None else bool(nonnegative),
        solver=as_solver(solver, problem.p),
    )


@functools.partial(jax.jit, static_argnames=("problem", "axis", "nonnegative", "solver"))
def _compiled(
    s: Array, w: Array, lam: Array, *, problem: Problem, axis: int, nonnegative: bool, solver: Solver
) -> Solution:
    rows, restore = as_rows(s, axis, lam.dtype)
    found = solve(problem, rows, as_rows(w, axis, lam.dtype)[0], lam, solver, nonnegative)
    batch = batch_shape(s, axis)
    return Solution(
        restore(found.v.hi + found.v.lo),
        *(value.reshape(batch) for value in (found.iterations, found.residual, found.converged)),
    )
