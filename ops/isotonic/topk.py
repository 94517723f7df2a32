"""Relaxed top-k operators through the isotonic problem with ``w = 1_k`` (Propositions 5 and 6)."""

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from ..arithmetic import TwoFloat, choose
from ..interface import ENTRIES, POSITIVE_STRENGTH, UP_TO_N, Axis, check_entries, check_p, floating, rowwise
from ..nonlinearities import HALF_SQUARE, IDENTITY, Nonlinearity, nonlinearity
from ..scalar.equation import Equation
from ..scalar.magnitude import gain, gain_debiased, share_at_zero
from ..scalar.mask import gain_of_mask, with_slope_in_k
from .problem import Problem, descending
from .solvers import PAV, REPORT, Pooled, Solution, Solver, SolverName, as_solver, solve


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
    """Returns ``relaxed_topk`` by an isotonic solver, and its ``Solution``, which says whether the solver converged.

    ``solver`` is ``"pav"``, ``"dykstra"``, ``"dual"``, or one of these classes with settings, and ``lam`` is positive;
    other arguments are as in ``sparse_topk.relaxed_topk``.

    Returns:
      The operator's value, in the shape and dtype of ``x``, and the solution of the isotonic problem, whose entries are
      in descending order (of magnitude, if ``phi`` is even), shifted so that the k-th is 0 if ``phi`` is the identity.

    Raises:
      ValueError: an argument known at trace time is out of range.

    See also:
      `sparse_topk.relaxed_topk` for the operator; `isotonic_solution` for other weights.

    >>> topk_solution([1.0, 3.0, 2.0], 2, lam=1.0)[1].converged
    Array(True, dtype=bool)
    """
    x, p = floating(x), check_p(p)
    check_entries("x", x, axis)
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
    y, solution = isotonic_topk(x, k, lam, problem, solver)
    return y, solution.report()


def topk_weights(k: Array, n: int) -> Array:
    """Returns ``1_k``, shape ``(rows, n)``: ones, then the fractional part of ``k`` ``(rows, 1)``, then zeros.

    Its derivative in ``k`` is 1 at the first entry that is not fully selected.
    """
    floor = jnp.floor(lax.stop_gradient(k))
    index = jnp.arange(n, dtype=k.dtype).reshape(1, n)
    return choose(index < floor, 1.0, choose(index == floor, k - floor, 0.0))


def _bring_infinities_near(s: Array, lam: Array, problem: Problem) -> Array:
    """Replaces infinite entries by finite ones that no block with the finite entries can reach.

    A block spans at most ``lam * phi'(s) ** (p - 1)``, with ``s`` its largest entry.
    """
    constant = lax.stop_gradient(s)
    finite = jnp.abs(constant) < jnp.inf
    some = jnp.any(finite, axis=1, keepdims=True)
    largest = choose(some, jnp.max(choose(finite, constant, -jnp.inf), axis=1, keepdims=True), 0.0)
    smallest = choose(some, jnp.min(choose(finite, constant, jnp.inf), axis=1, keepdims=True), 0.0)
    reach = jnp.minimum(2.0 * problem.gap(problem.slope(largest), lam), 0.25 * jnp.finfo(s.dtype).max)
    above = jnp.maximum(jnp.nextafter(largest, jnp.inf), largest + reach)
    below = jnp.minimum(jnp.nextafter(smallest, -jnp.inf), smallest - reach)
    return choose(s == jnp.inf, above, choose(s == -jnp.inf, below, s))


def isotonic_topk(
    entries: Array,
    k: Array,
    lam: Array,
    problem: Problem,
    solver: Solver,
    *,
    debias: bool = False,
    where: Array | None = None,
) -> tuple[Array, Pooled]:
    """Returns the operator of Proposition 2 with ``w = 1_k``, by sorting and isotonic optimisation.

    For an increasing ``phi``, ``entries`` of ``-inf`` take no part; for an even one ``where`` says which take part.
    ``debias`` adds ``lam * y ** (p - 1) = s - v``, which undoes the shrinkage of kept entries. The solution returned is
    in the order of the sorted entries.
    """
    even, given_k = problem.phi.even, k
    keys = jnp.abs(entries) if even else entries
    constant = lax.stop_gradient(keys)
    s, restore = descending(keys)
    absent = s == -jnp.inf
    if not even:
        available = jnp.sum(s > -jnp.inf, axis=1, keepdims=True).astype(k.dtype)
        k = choose(k > available, available, k)  # unlike `minimum`, has derivative 1 at equality
        s = _bring_infinities_near(s, lax.stop_gradient(lam), problem)
    if problem.phi == IDENTITY:
        # Entries are shifted so that the block lies near 0, where floats are dense.
        index = jnp.clip(jnp.ceil(lax.stop_gradient(k)).astype(jnp.int32) - 1, 0, s.shape[1] - 1)
        s = s - jnp.take_along_axis(lax.stop_gradient(s), index, axis=1)
    w = topk_weights(k, s.shape[1])
    solution = solve(problem, s, w, lam, solver)
    alone = ~(solution.linked | jnp.roll(solution.linked, 1, axis=1))
    if even:
        # The solution with v >= 0 is the one without, truncated (Nemeth and Nemeth, 2012).
        negative = solution.v.hi < 0
        alone = alone & ~negative
        solution = solution._replace(v=TwoFloat(*(choose(negative, 0.0, part) for part in solution.v)))

    v, t = solution.v.hi + solution.v.lo, (s - solution.v.hi) - solution.v.lo
    # An unpooled entry needs no difference of s and v, and is exact.
    y = choose(alone, w * problem.slope(v), problem.dual(choose(alone, 0.0, t), lam))
    if isinstance(solver, PAV):
        y = choose(y >= 1, 1.0, y) if problem.linear else y
        # Also drops the derivative in k of an entry that only a larger k would select.
        y = choose(y <= 0, 0.0, y)
    full = alone & (w == 1)
    # Either t or y may underflow, but not both.
    selected = (t > 0 if isinstance(solver, PAV) else t != 0) | (alone & (y != 0))
    z = choose(selected, choose(full, 1.0, 0.5, s.dtype), 0.0)
    if debias:
        y = choose(selected, choose(full, s, y + t), 0.0)
    if isinstance(solver, PAV):
        marginal = gain_of_mask if problem.linear else gain_debiased if debias else gain
        equation = Equation(problem.p, problem.phi)
        competing = choose(absent, -jnp.inf, s)
        (y,) = with_slope_in_k((y,), (jnp.ones_like(y),), (competing,), (z,), k, lam, equation, marginal)
    y = restore(y)
    # A NaN may be lost in sorting or solving, so its row is marked here.
    lost = jnp.any(jnp.isnan(constant), axis=1, keepdims=True) | jnp.isnan(lam) | jnp.isnan(k)
    y = choose(lost, jnp.nan, y)
    if not even:
        return y, solution
    y = jnp.sign(entries) * y
    if problem.phi == HALF_SQUARE and (debias or problem.p == 2):
        # Entries that are 0 have a derivative if k exceeds the number of non-zero entries.
        slope = 1.0 if debias else 1.0 / (1.0 + lax.stop_gradient(lam))
        present = jnp.full(entries.shape, True) if where is None else where
        nonzero, count = (jnp.sum(part, axis=1, keepdims=True) for part in (entries != 0, present))
        share = share_at_zero(given_k, nonzero, count, lam, problem.p)
        y = y + choose((entries == 0) & (share > 0), slope * share * entries, 0.0)
    return y, solution
