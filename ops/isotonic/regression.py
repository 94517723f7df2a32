"""Isotonic regression with general weights, for arrays of any shape."""

from typing import Any

import numpy as np
from jax import Array
from jax.typing import ArrayLike

from ..arithmetic import choose, power
from ..interface import (
    POSITIVE_STRENGTH,
    Axis,
    Range,
    check_entries,
    check_flag,
    check_p,
    check_values,
    floating,
    known,
    rowwise,
    shown,
    strength,
)
from ..nonlinearities import ABS, Nonlinearity, nonlinearity
from .problem import Problem
from .solvers import REPORT, Solution, Solver, SolverName, as_solver, solve

_REAL = Range("a real number")
# The quotient of two weights is a normal float32.
_SAMPLE_WEIGHT = Range("in [1e-16, 1e16]", 1e-16, 1e16)


def isotonic_regression(
    s: ArrayLike,
    w: ArrayLike = 0.0,
    *,
    lam: ArrayLike = 1.0,
    p: float = 2.0,
    phi: str | Nonlinearity = "identity",
    axis: Axis = -1,
    increasing: bool = False,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    solver: SolverName | Solver = "pav",
) -> Array:
    """Returns the solution of ``min sum_i c_i (r*(s_i - v_i) + w_i phi(v_i))`` over decreasing ``v``.

    With ``c = 1`` this is equation 5 of Sander et al. (2023), where ``r*(t) = lam ** (1 - q) |t| ** q / q`` is the
    conjugate of ``lam / p |y| ** p``. If ``s`` and ``w`` are sorted in decreasing order, ``y_i = (r*)'(s_i - v_i)`` is
    the relaxed operator of Proposition 2 (Propositions 5 and 6). With ``w = 0`` and ``p = 2`` it is isotonic regression
    of ``s`` with weights ``c``, whatever ``lam``; scikit-learn's function of this name has ``increasing=True``.

    Differentiable in ``s``, ``w``, ``lam``, the weights ``c`` and the bounds, in both modes and to any order, in closed
    form block by block (Proposition 7). If the solver has not converged, the derivative is that of the blocks found so
    far.

    Args:
      s: finite real array, any shape.
      w: weights of ``phi``, real, broadcasting against ``s``. Not negative, unless ``phi`` is ``"identity"`` or
        ``"abs"``.
      lam: strength of the regularisation, positive; a scalar, or one value per row (the shape of ``s`` without
        ``axis``).
      p: exponent of the regularisation, a Python number in (1, 2].
      phi: the nonlinearity, or its name: ``"identity"``, ``"abs"``, ``"half_square"``, ``"exp"``, or a registered one.
      axis: the axis along which ``v`` decreases; a tuple of several, or ``None`` for all.
      increasing: whether ``v`` increases instead.
      lower: least value of ``v``: a scalar, or one value per row. ``-inf`` by default, but 0 for an even ``phi``
        (Proposition 6), whose ``s`` have to be magnitudes then. Not negative for ``"abs"``.
      upper: greatest value of ``v``, at least ``lower``; ``inf`` by default.
      sample_weight: ``c``, in [1e-16, 1e16], broadcasting against ``s``; 1 by default. An entry of weight 2 counts as
        two entries.
      solver: ``"pav"`` (exact), ``"dykstra"`` (``p = 2`` only), ``"dual"``, or one of these with settings of its own,
        like ``Dykstra(max_iter=10, tol=0.0)``.

    Returns:
      Array of the shape and dtype of ``s`` (integers are promoted to float; computed in float32 at least). If
      gaps between entries, divided by ``lam`` and raised to the power ``1 / (p - 1)``, overflow (in float32 from 12
      ``lam`` on for ``p = 1.02``, from 1.4e13 ``lam`` on for ``p = 4/3``), rows that PAV cannot put in order are NaN.
      Rows are NaN, too, if an entry or argument is NaN, a traced ``lower`` is above ``upper``, or
      ``lam / c ** (p - 1)`` not in [1e-32, 1e32]. ``sparse_topk.isotonic.isotonic_solution`` says whether a
      solver converged.

    Raises:
      ValueError: an argument known at trace time is out of range.

    See also:
      `sparse_topk.isotonic.isotonic_solution` to see whether the solver converged; `sparse_topk.project_permutahedron`
      and `sparse_topk.soft_sort`, which stand on it.

    >>> isotonic_regression([1.0, 3.0, 2.0])
    Array([2., 2., 2.], dtype=float32)
    """
    options: dict[str, Any] = {"lower": lower, "upper": upper, "sample_weight": sample_weight, "solver": solver}
    return isotonic_solution(s, w, lam=lam, p=p, phi=phi, axis=axis, increasing=increasing, **options).v


def isotonic_solution(
    s: ArrayLike,
    w: ArrayLike = 0.0,
    *,
    lam: ArrayLike = 1.0,
    p: float = 2.0,
    phi: str | Nonlinearity = "identity",
    axis: Axis = -1,
    increasing: bool = False,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    solver: SolverName | Solver = "pav",
) -> Solution:
    """Returns ``isotonic_regression`` as a ``Solution``, which says whether the solver converged.

    Arguments and errors are those of ``sparse_topk.isotonic_regression``.

    See also:
      `sparse_topk.isotonic_regression` for the values alone; `PAV`, `Dykstra` and `Dual` for settings.

    >>> isotonic_solution([1.0, 3.0, 2.0], solver="dykstra").converged
    Array(True, dtype=bool)
    """
    s, w, phi = floating(s, "s"), floating(w, "w"), nonlinearity(phi)
    problem = Problem(check_p(p), phi)
    if not problem.linear and known(w) and np.any(np.asarray(w) < 0):
        raise ValueError(f"w must not be negative for phi={phi.name!r}, got {np.min(np.asarray(w))}")
    check_entries("s", s, axis)
    default = 0.0 if phi.even else -np.inf
    above = Range("at least 0 for phi='abs'", 0.0) if phi == ABS else _REAL
    lower = check_values("lower", default if lower is None else lower, above)
    upper = check_values("upper", np.inf if upper is None else upper, _REAL)
    if known(lower) and known(upper) and np.any(np.asarray(lower) > np.asarray(upper)):
        raise ValueError(f"upper must be at least lower, got upper={shown(upper)}, lower={shown(lower)}")
    aligned: dict[str, ArrayLike] = {"w": w}
    if sample_weight is not None:
        aligned["sample_weight"] = check_values("sample_weight", sample_weight, _SAMPLE_WEIGHT)
    return rowwise(
        _solved,
        s,
        axis=axis,
        name="s",
        aligned=aligned,
        per_row={"lam": (lam, POSITIVE_STRENGTH), "lower": (lower, _REAL), "upper": (upper, _REAL)},
        returns=REPORT,
        problem=problem,
        increasing=check_flag("increasing", increasing),
        solver=as_solver(solver, problem.p),
    )


def _solved(
    s: Array,
    w: Array,
    lam: Array,
    lower: Array,
    upper: Array,
    sample_weight: Array | None = None,
    *,
    problem: Problem,
    increasing: bool,
    solver: Solver,
) -> Solution:
    """Solves rows. The solution within bounds is that without them, clipped, for all convex ``h_i``.

    Of a decreasing ``u`` in ``[a, b]`` the objective is ``sum_i h_i(a)`` plus the integral over ``gamma`` from a to b
    of ``sum h_i'(gamma)`` over the entries with ``u_i > gamma``, which are the first ones of the row. The solution
    without bounds minimises this sum for every ``gamma``, among all numbers of first entries: the least minimisers
    fall as ``gamma`` rises, because ``h_i'`` does not fall, so together they are the level sets of a decreasing vector.
    Clipping leaves the level sets of ``gamma`` in ``[a, b)`` as they are.
    """
    step, strengths = -1 if increasing else 1, lam
    if sample_weight is not None:
        # A multiple of h_i is the h_i of another w_i and of another lam, which then differs by entry.
        strengths = strength(lam / power(sample_weight, problem.p - 1.0), POSITIVE_STRENGTH)
        w = w * sample_weight
    solution = solve(problem, s[:, ::step], w[:, ::step], strengths[:, ::step], solver, lam).report()
    v = solution.v[:, ::step]
    v = choose(v < lower, lower, choose(v > upper, upper, v))
    return solution._replace(v=choose(lower <= upper, v, np.nan))
