"""The solvers of the isotonic problem: their settings, results, and the derivative of blocks (Proposition 7)."""

import dataclasses
import functools
import math
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..arithmetic import TwoFloat, choose, select
from ..interface import ENTRIES, FULL_PRECISION_ROWS, ROWS, check_choice, check_whole, exportable, shown, varying_as
from . import dual, dykstra
from .pav import pool_adjacent_violators
from .problem import Problem


@dataclasses.dataclass(frozen=True)
class PAV:
    """Pool adjacent violators (App. B.2): exact, any ``p`` and ``phi``, O(n log n).

    See also:
      `Dykstra` and `Dual`, which iterate.
    """


@dataclasses.dataclass(frozen=True)
class _Iterative:
    max_iter: int = 1000
    tol: float | None = None


@dataclasses.dataclass(frozen=True)
class Dykstra(_Iterative):
    """Dykstra's alternating projections (Algorithm 1): ``p = 2`` and ``phi`` in ``{x, |x|, x^2/2}``.

    Attributes:
      max_iter: the most iterations, each a projection onto ``C_1`` and one onto ``C_2``.
      tol: residual at which a row has converged, in units of ``lam``. The default is 1e-6 in float32 and 1e-12 in
        float64, plus the rounding of the entries. 0 makes exactly ``max_iter`` iterations (the paper's V-MoE uses 10).

    See also:
      `PAV`, which is exact and usually faster; `Dual` for other ``p``.
    """


@dataclasses.dataclass(frozen=True)
class Dual(_Iterative):
    """Block coordinate ascent on the dual (App. A.8), any ``p`` and ``phi``.

    Attributes:
      max_iter: the most iterations, each over the multipliers of both parities.
      tol: as in ``Dykstra``.

    See also:
      `PAV`, which is exact and faster; `Dykstra` for ``p = 2``.
    """


Solver = PAV | Dykstra | Dual
SOLVERS: dict[str, Solver] = {"pav": PAV(), "dykstra": Dykstra(), "dual": Dual()}
SolverName = Literal["pav", "dykstra", "dual"]

# The largest residual of a solution that is exact up to rounding, in units in the last place of entries and solution
# (0.5 was measured for PAV, 2.4 for Dykstra's algorithm).
_ROUNDINGS = 4

# Iterations between two evaluations of the residual, which costs as much as several iterations.
_STRIDE = 10


@exportable
class Solution(NamedTuple):
    """The result of an isotonic solver.

    Attributes:
      v: the solution, in the shape of the entries.
      iterations: int32, the number of iterations (of PAV: of merges of two blocks); like the fields below, one
        value per row, in the shape of the entries without their axis.
      residual: the violation of the optimality conditions, in units of ``v``.
      converged: bool, whether the residual is within the tolerance.

    See also:
      `isotonic_solution` and `topk_solution`, which return it.
    """

    v: Array
    iterations: Array
    residual: Array
    converged: Array


# The kinds of the fields of a `Solution`, for `ops.interface.rowwise`.
REPORT = Solution(ENTRIES, ROWS, FULL_PRECISION_ROWS, ROWS)


class Pooled(NamedTuple):
    """A solution together with its blocks, all of shape ``(rows, n)`` except the last three, ``(rows, 1)``."""

    v: TwoFloat
    linked: Array  # whether an entry is pooled with its successor
    iterations: Array
    residual: Array
    converged: Array

    def report(self) -> Solution:
        """Returns the public part."""
        return Solution(self.v.hi + self.v.lo, self.iterations, self.residual, self.converged)


def as_solver(solver: str | Solver, p: float) -> Solver:
    """Returns the solver of a name, or the given one, after checks of its settings and of ``p``.

    Raises:
      ValueError: no solver has this name, a setting is out of range, or the solver needs ``p = 2``.
    """
    if isinstance(solver, str):
        solver = SOLVERS[check_choice("solver", solver, tuple(SOLVERS))]
    elif not isinstance(solver, PAV | Dykstra | Dual):
        raise ValueError(f"solver must be a name or one of PAV, Dykstra, Dual, got {shown(solver)}")
    if isinstance(solver, _Iterative):
        check_whole("max_iter", solver.max_iter, 1, np.inf, "at least 1")
        if solver.tol is not None and not (isinstance(solver.tol, float | int | np.number) and solver.tol >= 0):
            raise ValueError(f"tol must be at least 0, got {shown(solver.tol)}")
    if isinstance(solver, Dykstra) and p != 2:
        raise ValueError(f"p must be 2 for the solver 'dykstra', got {p}; 'dual' takes any p")
    return solver


def solve(problem: Problem, s: Array, w: Array, lam: Array, solver: Solver, unit: Array | None = None) -> Pooled:
    """Returns the solution of the isotonic problem of each row; ``v.lo`` carries the derivative of Proposition 7.

    ``lam`` may have the shape of ``s``; ``unit``, ``(rows, 1)``, is that of the default tolerance, by default ``lam``.
    """
    unit = lax.stop_gradient(lam if unit is None else unit)
    terms = [lax.stop_gradient(value) for value in (s, w, lam)]
    if isinstance(solver, PAV):
        v, linked = pool_adjacent_violators(problem, *terms)
        iterations = jnp.sum(linked, axis=1, keepdims=True, dtype=jnp.int32)
        v = select(_out_of_order(v) & jnp.full(s.shape, True), TwoFloat(jnp.full_like(s, jnp.nan), v.lo), v)
    else:
        v, linked, iterations = _iterate(solver, problem, unit, *terms)
    point = v.hi + v.lo
    off = _residuals(problem, point, linked, *terms)
    unknown = functools.reduce(jnp.logical_or, [jnp.any(jnp.isnan(term), axis=1, keepdims=True) for term in terms])
    v = TwoFloat(choose(unknown, jnp.nan, v.hi), choose(unknown, 0.0, v.lo))
    return Pooled(
        v=_attach_derivative(problem, s, w, lam, v, linked),
        linked=linked,
        iterations=iterations,
        residual=jnp.max(off, axis=1, keepdims=True),
        converged=_all(off <= _tolerance(solver, terms[0], point, linked, unit)),
    )


def _out_of_order(v: TwoFloat) -> Array:
    """Returns which rows ``(rows, 1)`` are out of order by more than rounding, because powers of gaps overflowed."""
    value = v.hi + v.lo
    rises = jnp.max(value[:, 1:] - value[:, :-1], axis=1, keepdims=True, initial=0.0)
    return rises > math.sqrt(jnp.finfo(value.dtype).eps) * jnp.max(jnp.abs(value), axis=1, keepdims=True)


def _tolerance(solver: Solver, s: Array, v: Array, linked: Array, lam: Array) -> Array:
    """Returns the residual at which an entry has converged; the default includes the rounding of entries and solution.

    An iterative solver would stop at the rounding of the largest entry of a row, far above others that still move, so
    for it only the entries of the same block count.
    """
    if isinstance(solver, _Iterative) and solver.tol is not None:
        return solver.tol * lam
    size = jnp.abs(s) + jnp.abs(v)
    size = _block_max(size, linked) if isinstance(solver, _Iterative) else jnp.max(size, axis=1, keepdims=True)
    return (1e-12 if s.dtype == jnp.float64 else 1e-6) * lam + _ROUNDINGS * jnp.finfo(s.dtype).eps * size


def _iterate(
    solver: Dykstra | Dual, problem: Problem, unit: Array, s: Array, w: Array, lam: Array
) -> tuple[TwoFloat, Array, Array]:
    """Returns the point that an iterative solver reaches, its links, and the iterations that each row took."""
    method: Any = dykstra if isinstance(solver, Dykstra) else dual
    state, advance = method.start(problem, s, w, lam)

    def unfinished(carry: tuple[Any, Array, Array, Array]) -> Array:
        _, done, _, iteration = carry
        return jnp.any(~done) & (iteration < solver.max_iter)

    def stride(carry: tuple[Any, Array, Array, Array]) -> tuple[Any, Array, Array, Array]:
        state, done, taken, iteration = carry
        count = jnp.minimum(_STRIDE, solver.max_iter - iteration)
        state = lax.fori_loop(0, count, lambda _, state: advance(state), state)
        linked = method.linked(state)
        off = _residuals(problem, state.v, linked, s, w, lam)
        taken = choose(done, taken, taken + count)
        done = done | _all(off <= _tolerance(solver, s, state.v, linked, unit))
        return state, done, taken, iteration + count

    none_done = jnp.zeros(unit.shape, bool)
    per_row = varying_as((state, none_done, jnp.zeros(unit.shape, jnp.int32)), (s, w, lam))
    state, _, taken, _ = lax.while_loop(unfinished, stride, (*per_row, jnp.int32(0)))
    return TwoFloat(state.v, jnp.zeros_like(state.v)), method.linked(state), taken


def _firsts(linked: Array) -> Array:
    """Returns which entries are the first of their block, ``(rows, n)``."""
    return jnp.concatenate([jnp.ones_like(linked[:, :1]), ~linked[:, :-1]], axis=1)


def _block_sum(values: Array, linked: Array) -> Array:
    """Returns at every entry the sum of ``values`` over its block, ``(rows, n)``."""
    rows, n = values.shape
    first = _firsts(linked)
    # A segment sum adds one entry after another, so that its rounding error grows with the number of entries. Summing
    # pieces of at most sqrt(n) entries first, then the pieces, keeps the error small.
    cut = (jnp.arange(n) % math.isqrt(n) == 0).reshape(1, n)
    piece = jnp.cumsum((first | cut).ravel(), dtype=jnp.int32) - 1
    block = jnp.cumsum(first.ravel(), dtype=jnp.int32) - 1
    block_of_piece = jnp.full(rows * n, rows * n - 1, jnp.int32).at[piece].set(block)
    add = functools.partial(jax.ops.segment_sum, num_segments=rows * n, indices_are_sorted=True)
    return add(add(values.ravel(), piece), block_of_piece)[block].reshape(rows, n)


def _block_max(values: Array, linked: Array) -> Array:
    """Returns at every entry the largest of ``values`` in its block, ``(rows, n)``."""
    block = jnp.cumsum(_firsts(linked).ravel(), dtype=jnp.int32) - 1
    most = jax.ops.segment_max(values.ravel(), block, num_segments=values.size, indices_are_sorted=True)
    return most[block].reshape(values.shape)


def _all(condition: Array) -> Array:
    return jnp.all(condition, axis=1, keepdims=True)


def _residuals(problem: Problem, v: Array, linked: Array, s: Array, w: Array, lam: Array) -> Array:
    """Returns the violation of the optimality conditions at each entry, in the units of ``v``, shape ``(rows, n)``.

    It is the larger of two: the distance of an entry from the value to which its block would pool, and the amount by
    which this value is out of order with the one before. It is zero only at the solution, provided that the multipliers
    of the links are not negative. The change between iterations cannot replace it, since slow convergence makes that
    small.
    """
    mean = _block_sum(v, linked) / _block_sum(jnp.ones_like(v), linked)
    t = s - mean
    slope = _block_sum(w * problem.slope(mean) - problem.dual(t, lam), linked)
    curvature = _block_sum(problem.dual_slope(t, lam) + w * problem.curvature(mean), linked)
    pooled = mean - choose(curvature > 0, slope / choose(curvature > 0, curvature, 1.0), 0.0)
    disorder = jnp.maximum(pooled[:, 1:] - pooled[:, :-1], 0.0)
    return jnp.maximum(jnp.abs(v - pooled), jnp.pad(disorder, ((0, 0), (1, 0))))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _attach_derivative(problem: Problem, s: Array, w: Array, lam: Array, v: TwoFloat, linked: Array) -> TwoFloat:
    """Returns the solution ``v`` with its derivative in ``s``, ``w`` and ``lam``."""
    return v


@_attach_derivative.defjvp
def _attach_derivative_jvp(problem, primals, tangents):
    s, w, lam, v, linked = primals
    s_dot, w_dot, lam_dot = tangents[:3]
    v = _attach_derivative(problem, s, w, lam, v, linked)
    value, t = v.hi + v.lo, (s - v.hi) - v.lo
    # All terms of a row are multiplied by lam where it is small, since dual_slope alone overflows then. dual is a power
    # of t / lam.
    unit = lax.stop_gradient(jnp.minimum(jnp.min(lam, axis=1, keepdims=True), 1.0))
    stiffness = unit * problem.dual_slope(t, lam)
    weakened = -stiffness * (t / lam) * lam_dot
    moved = _block_sum(stiffness * s_dot + weakened - unit * problem.slope(value) * w_dot, linked)
    total = _block_sum(stiffness + unit * (w * problem.curvature(value)), linked)
    # The total is 0 for entries without weight, whose derivative is that of s.
    some = total > 0
    v_dot = choose(some, moved / choose(some, total, 1.0), s_dot)
    return v, TwoFloat(jnp.zeros_like(v.hi), v_dot)
