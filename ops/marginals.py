"""The scalar equations of all rows and columns of a matrix at once: a plan whose two marginals are constrained.

    T_ij = clip((x_ij - u_i - v_j) / lam, 0, 1) ** (1 / (p - 1)),
    sum_j T_ij = k_i,        sum_i T_ij <= b_j,        v_j >= 0, and 0 where the column is below its limit.

The plan ``T`` maximises ``<x, T> - lam / p * ||T||_p^p`` under these constraints. The potentials ``u`` and ``v``
minimise the dual, which is convex, and nearly piecewise linear for a small ``lam``. If scores tie, Newton's method then
fails, because only partly selected entries have a slope. The solver therefore starts with an interior-point method
(Mehrotra 1992), which keeps all entries between 0 and 1 and takes 5 to 30 iterations on any problem. From its
potentials, Newton's method takes one to three iterations. After each of its steps the scalar equations of all columns
and then of all rows are solved (block-coordinate ascent of the dual). Rows come last, so that each selects ``k`` up to
rounding.

Arrays are ``(matrices, m, n)``; ``u`` and ``k`` are ``(matrices, m, 1)``, ``v`` and ``b`` ``(matrices, 1, n)``, ``lam``
``(matrices, 1, 1)``.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from .arithmetic import TwoFloat, choose, dual_exponent, power, power_of_two, ratio, select, shift, two_sum
from .interface import varying_as
from .scalar.equation import Equation
from .scalar.threshold import threshold

# The interior-point method stops once the complementarity products are this number of roundings of `lam`.
_COMPLEMENTARITY, _INTERIOR_ITERATIONS = 10.0, 100
# The damping of Newton's matrix as a share of the residual, and the step lengths that are tried.
_DAMPING, _STEP_LENGTHS = 0.01, (0.05, 0.3, 1.0)


class Problem(NamedTuple):
    """Scores ``x``, the sums ``k`` of rows, the limits ``b`` of columns, and the strength ``lam`` of the relaxation."""

    x: Array
    k: Array
    b: Array
    lam: Array


class Potentials(NamedTuple):
    """The multipliers of rows and columns; only ``lo`` carries a derivative."""

    u: TwoFloat
    v: TwoFloat


_row_sums, _column_sums, _total = (functools.partial(jnp.sum, axis=axis, keepdims=True) for axis in (2, 1, (1, 2)))
_largest = functools.partial(jnp.max, axis=(1, 2), keepdims=True)
_transposed = jnp.matrix_transpose


def _reduced_scores(x: Array, at: Potentials) -> Array:
    """Returns ``x - u - v``, precise even where it is small, since ``x``, ``u`` and ``v`` may be far above ``lam``."""
    first = two_sum(x, -at.v.hi)
    second = two_sum(first.hi, -at.u.hi)
    rest = (first.lo - at.v.lo) + (second.lo - at.u.lo)
    return second.hi + choose(x > -jnp.inf, rest, 0.0)


def _selection(x: Array, at: Potentials, lam: Array, p: float) -> tuple[Array, ...]:
    """Returns the position of partly selected entries (1 elsewhere), which entries these are, and the plan."""
    t = _reduced_scores(x, at) / lam
    part = (t > 0) & (t < 1)
    inner = choose(part, t, 1.0)
    return inner, part, choose(part, power(inner, dual_exponent(p)), (t >= 1).astype(t.dtype))


def _moved_potential(potential: TwoFloat, s: Array, total: Array, lam: Array, p: float) -> TwoFloat:
    """Returns the potential at which a row selects ``total``; ``s`` are its scores minus the given ``potential``."""
    lam_per_row = jnp.broadcast_to(lam, total.shape).reshape(-1, 1)
    thresholds = threshold((s.reshape(-1, s.shape[2]),), total.reshape(-1, 1), lam_per_row, Equation(p))
    moved = TwoFloat(*(value.reshape(total.shape) for value in thresholds))
    hi, lo = two_sum(potential.hi, moved.hi)
    return two_sum(hi, lo + (potential.lo + moved.lo))


def _solve_columns(at: Potentials, problem: Problem, p: float) -> TwoFloat:
    x, _, b, lam = problem
    zero = jnp.zeros_like(b)
    nothing = TwoFloat(zero, zero)
    free, sums = (_column_sums(_selection(x, at._replace(v=v), lam, p)[2]) for v in (nothing, at.v))
    v = TwoFloat(*map(_transposed, at.v))
    v = TwoFloat(*map(_transposed, _moved_potential(v, _transposed(_reduced_scores(x, at)), _transposed(b), lam, p)))
    # If an interval of potentials is right, keep the current one: at its ends other entries are about to be selected.
    v = select(jnp.abs(sums - b) <= 4 * jnp.finfo(x.dtype).eps * b, at.v, v)
    return select((free <= b) | (v.hi < 0), nothing, v)


def _lowered(at: Potentials, problem: Problem) -> Potentials:
    """Returns potentials of the same plan, with one ``v`` of 0 if the limits allow for more than the rows select.

    As long as all of ``v`` is positive, no step that looks at the sums of rows and columns finds the way there: they do
    not depend on what is added to all of ``v`` and taken from all of ``u``.
    """
    counts = _column_sums((problem.x > -jnp.inf).astype(problem.x.dtype))
    spare = _total(jnp.minimum(problem.b, counts)) > _total(problem.k)
    least = jnp.argmin(choose(counts > 0, at.v.hi, jnp.inf), axis=2, keepdims=True)
    hi, lo = (choose(spare, jnp.take_along_axis(part, least, axis=2), 0.0) for part in at.v)
    u, v = (two_sum(of.hi, sign * hi) for of, sign in ((at.u, 1.0), (at.v, -1.0)))
    u, v = two_sum(u.hi, u.lo + (at.u.lo + lo)), two_sum(v.hi, v.lo + (at.v.lo - lo))
    return Potentials(u, TwoFloat(*(choose(v.hi > 0, part, 0.0) for part in v)))


def _violation(at: Potentials, problem: Problem, p: float) -> Array:
    """Returns the largest violation of the sum of a row, of the limit of a column, or of a binding limit."""
    _, _, taken = _selection(problem.x, at, problem.lam, p)
    over = _column_sums(taken) - problem.b
    columns = choose(at.v.hi > 0, jnp.abs(over), jnp.maximum(over, 0.0))
    return jnp.maximum(_largest(jnp.abs(_row_sums(taken) - problem.k)), _largest(columns))


def _system(w: Array, rows: Array, columns: Array) -> Callable[[Array, Array], tuple[Array, ...]]:
    """Returns a solver of ``(diag(w 1 + rows), w; w^T, diag(w^T 1 + columns)) (u; v) = (a; b)``.

    It eliminates the larger of ``u`` and ``v``. The Schur complement is summed without differences: its diagonal may be
    far below the eliminated terms, and alone determines how far ``u`` rises while ``v`` falls.
    """
    if w.shape[1] > w.shape[2]:
        solve_transposed = _system(_transposed(w), _transposed(columns), _transposed(rows))
        return lambda a, b: tuple(map(_transposed, solve_transposed(_transposed(b), _transposed(a))[::-1]))
    total = _column_sums(w) + columns
    inverse = choose(total > 0, 1.0 / choose(total > 0, total, 1.0), 0.0)
    shares, identity = w * inverse, jnp.eye(w.shape[1], dtype=w.dtype)[None]
    pairs = (1.0 - identity) * jnp.einsum("cij,clj->cil", shares, w, precision=lax.Precision.HIGHEST)
    diagonal = rows + _row_sums(shares * columns) + _row_sums(pairs)
    scale = choose(diagonal > 0, lax.rsqrt(choose(diagonal > 0, diagonal, 1.0)), 0.0)
    regular = 1.0 + 8.0 * jnp.finfo(w.dtype).eps
    factor = lax.linalg.cholesky(regular * identity - scale * pairs * _transposed(scale), symmetrize_input=False)
    divided = functools.partial(lax.linalg.triangular_solve, factor, left_side=True, lower=True)

    def solve(a: Array, b: Array) -> tuple[Array, Array]:
        u = scale * divided(divided(scale * (a - _row_sums(shares * b))), transpose_a=True)
        return u, inverse * (b - _column_sums(w * u))

    return solve


class _Interior(NamedTuple):
    """The state of the interior-point method: potentials, positive quantities ``room``, and their multipliers.

    The products of ``room`` and ``price`` tend to 0 together.
    """

    at: Potentials
    room: tuple[Array, ...]  # the plan, 1 minus the plan, and the slack of columns
    price: tuple[Array, ...]  # one multiplier for each; the last is `at.v.hi`
    done: Array
    iterations: Array


def _interior(problem: Problem, p: float, max_iter: Array, size: Array) -> tuple[Potentials, Array]:
    """Returns potentials near the solution, and the number of iterations; ``size`` is that of differences of scores."""
    x, k, b, lam = problem
    present = x > -jnp.inf
    m, n = x.shape[1:]
    small = jnp.finfo(x.dtype).eps ** 0.5 * jnp.maximum(_largest(k), 1.0)

    def excess(room: tuple[Array, ...]) -> tuple[Array, Array]:
        entries = choose(present, room[0], 0.0)
        return _row_sums(entries) - k, _column_sums(entries) - b

    def gap(state: _Interior) -> Array:
        products = (_total(a * c) for a, c in zip(state.room, state.price, strict=True))
        return functools.reduce(jnp.add, products) / (2 * m * n + n)

    def infeasibility(state: _Interior) -> Array:
        rows, columns = excess(state.room)
        return jnp.maximum(_largest(jnp.abs(rows)), _largest(jnp.abs(columns + state.room[2])))

    def advance(state: _Interior) -> _Interior:
        (taken, left, slack), (z, w, v) = state.room, state.price
        (rows, columns), reduced = excess(state.room), choose(present, _reduced_scores(x, state.at), 0.0)
        curvature = lam * (p - 1.0) * power(taken, p - 2.0)
        weights = choose(present, 1.0 / (curvature + z / taken + w / left), 0.0)
        solve = _system(weights, jnp.zeros_like(k), slack / v)

        def step(aims: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...], tuple[Array, ...]]:
            """Returns Newton's step of ``u``, ``room`` and ``price`` towards complementarity products ``aims``."""
            lower, upper, below = aims[0] / taken, aims[1] / left, aims[2] / v
            flow = weights * (reduced - lam * power(taken, p - 1.0) + lower - upper)
            moved, du, dv = flow, jnp.zeros_like(k), jnp.zeros_like(b)
            for _ in range(2):  # the second solve removes the rounding errors of the first
                more = solve(_row_sums(moved) + rows, _column_sums(moved) + columns + below - slack / v * dv)
                moved, du, dv = moved - weights * (more[0] + more[1]), du + more[0], dv + more[1]
            prices = lower - z - z / taken * moved, upper - w + w / left * moved, dv
            return du, (moved, -moved, below - slack - slack / v * dv), prices

        def after(
            du: Array, rooms: tuple[Array, ...], prices: tuple[Array, ...], share: Array
        ) -> tuple[_Interior, Array]:
            """Returns the state after a step, and its length: at most ``share`` of that at which a quantity is 0."""
            pairs = zip((*state.room, *state.price), (*rooms, *prices), strict=True)
            fastest = functools.reduce(jnp.maximum, [_largest(-d / a) for a, d in pairs], jnp.ones_like(lam))
            length = jnp.minimum(1.0, share / fastest)
            at = Potentials(shift(state.at.u, length * du), shift(state.at.v, length * prices[2]))
            room = tuple(a + length * d for a, d in zip(state.room, rooms, strict=True))
            z, w = (a + length * d for a, d in zip(state.price[:2], prices[:2], strict=True))
            return state._replace(at=at, room=room, price=(z, w, at.v.hi)), length

        # Mehrotra's predictor aims at products of 0; the corrector takes its second-order error into account.
        current, zero = gap(state), jnp.zeros_like(lam)
        predicted = step((zero, zero, zero))
        reached = gap(after(*predicted, zero + 1.0)[0]) / current
        errors = (a * c for a, c in zip(predicted[1], predicted[2], strict=True))
        aims = tuple(current * reached**3 - error for error in errors)
        new, length = after(*step(aims), jnp.maximum(0.9, 1.0 - 0.1 * reached))

        # If no plan exists, steps become ever shorter. Once rounding dominates, the marginals become worse.
        off, left_over = infeasibility(new), gap(new)
        worse = (off > 1.5 * infeasibility(state)) & (off > small)
        lost = worse | (length < 1e-4) | ~jnp.isfinite(left_over + _total(new.at.u.hi) + _total(new.at.v.hi))
        solved = (left_over <= _COMPLEMENTARITY * jnp.finfo(x.dtype).eps * lam) & (off <= 4.0 * small)
        count = state.iterations + 1
        new = new._replace(done=lost | solved | (count >= max_iter), iterations=count)
        kept = jax.tree.map(functools.partial(choose, state.done | lost), state, new)
        return kept._replace(done=state.done | new.done, iterations=choose(state.done, state.iterations, count))

    available = jnp.maximum(_row_sums(present.astype(x.dtype)), 1.0)
    taken = choose(present, jnp.clip(k, 0.1, available - 0.1) / available, 0.5)
    slack = jnp.maximum(-excess((taken, taken, b))[1], 0.1)
    best = jnp.max(x, axis=2, keepdims=True)
    mu = size * _largest(taken)
    u, v, zero = choose(best > -jnp.inf, best, 0.0), mu / slack, jnp.zeros_like(b)
    at = Potentials(TwoFloat(u, jnp.zeros_like(u)), TwoFloat(v, zero))
    prices = mu / taken, mu / (1.0 - taken), v
    start = _Interior(at, (taken, 1.0 - taken, slack), prices, max_iter < 1, jnp.zeros(lam.shape, jnp.int32))
    final = lax.while_loop(lambda state: jnp.any(~state.done), advance, varying_as(start, (problem, size)))
    # At the solution a multiplier or its slack is 0.
    held = final.price[2] > lam * final.room[2]
    return final.at._replace(v=select(held, final.at.v, TwoFloat(zero, zero))), final.iterations


def _slopes(inner: Array, part: Array, lam: Array, p: float) -> Array:
    """Returns the derivatives of the entries of the plan in their scores."""
    exponent = dual_exponent(p)
    return choose(part, exponent * power(inner, exponent - 1) / lam, 0.0)


class _State(NamedTuple):
    """The state of Newton's method: potentials, the largest violation of a marginal, and iterations.

    The last three have the shape ``(matrices, 1, 1)``.
    """

    at: Potentials
    off: Array
    done: Array
    iterations: Array


def _solve(problem: Problem, p: float, max_iter: Array, tolerance: Array) -> _State:
    x, k, b, lam = problem
    finite = jnp.abs(x) < jnp.inf
    highest, lowest = (_largest(choose(finite, s, -jnp.inf)) for s in (x, -x))
    spread = choose(highest > -jnp.inf, jnp.maximum(highest + lowest, 0.0), 0.0)
    start, iterations = _interior(problem, p, jnp.minimum(max_iter - 1, _INTERIOR_ITERATIONS), spread + lam)

    def newton(at: Potentials) -> Potentials:
        """Returns the best of the steps tried, or the point itself if none lowers the violation."""
        inner, part, taken = _selection(x, at, lam, p)
        excess = _column_sums(taken) - b
        tight = (at.v.hi > 0) | (excess > 0)
        slopes, off = _slopes(inner, part, lam, p), _violation(at, problem, p)
        held, damping = choose(tight, slopes, 0.0), _DAMPING * jnp.minimum(off, 1.0)
        rows = _row_sums(slopes - held) + damping * _row_sums(slopes)
        du, dv = _system(held, rows, damping * _column_sums(held))(_row_sums(taken) - k, choose(tight, excess, 0.0))
        best = at
        for length in _STEP_LENGTHS:
            v = shift(at.v, length * dv)
            tried = Potentials(shift(at.u, length * du), TwoFloat(*(choose(v.hi > 0, part, 0.0) for part in v)))
            violation = _violation(tried, problem, p)
            best = jax.tree.map(functools.partial(choose, violation < off), tried, best)
            off = jnp.minimum(violation, off)
        return best

    def advance(state: _State) -> _State:
        at = newton(_lowered(state.at, problem))
        at = at._replace(v=_solve_columns(at, problem, p))
        at = at._replace(u=_moved_potential(at.u, _reduced_scores(x, at), k, lam, p))

        off, count = _violation(at, problem, p), state.iterations + 1
        new = _State(at, off, (off <= tolerance) | jnp.isnan(off) | (count >= max_iter), count)
        return jax.tree.map(functools.partial(choose, state.done), state, new)

    lost = jnp.any(jnp.isnan(x) | (x == jnp.inf), axis=(1, 2), keepdims=True)
    initial = _State(start, choose(lost, jnp.nan, jnp.full_like(lam, jnp.inf)), lost, iterations)
    return lax.while_loop(lambda state: jnp.any(~state.done), advance, varying_as(initial, (problem, iterations)))


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def _with_derivatives(problem: Problem, potentials: Potentials, p: float) -> Potentials:
    """Returns the potentials, which solve the problem, with their derivatives in it."""
    return potentials


@_with_derivatives.defjvp
def _with_derivatives_jvp(p, primals, tangents):
    """Applies the implicit function theorem to the equations of all rows and columns, whose Jacobian is symmetric.

    With ``w`` the slopes of the plan, ``D`` their sums over rows and ``C`` over columns at their limit, eliminating
    ``v`` leaves ``D - w C^-1 w^T``, scaled here by ``D^-1/2`` so that its diagonal is about 1. It is positive
    semidefinite; its null space raises ``u`` and lowers ``v``.
    """
    problem, at = primals
    moved = tangents[0]
    potentials = _with_derivatives(problem, at, p)
    inner, part = _position(problem, potentials)
    slopes = _slopes(inner, part, problem.lam, p)
    rows, columns = _row_sums(slopes), _column_sums(slopes)
    moving, tight = rows > 0, (lax.stop_gradient(potentials.v.hi) > 0) & (columns > 0)
    scale = choose(moving, lax.rsqrt(choose(moving, rows, 1.0)), 0.0)
    inverse = choose(tight, 1.0 / choose(tight, columns, 1.0), 0.0)

    def matrix(y: Array) -> Array:
        return y - scale * _row_sums(slopes * (inverse * _column_sums(slopes * (scale * y))))

    flow = slopes * choose(part, moved.x - inner * moved.lam, 0.0)
    columns = inverse * (_column_sums(flow) - moved.b)
    right = scale * (_row_sums(flow) - moved.k - _row_sums(slopes * columns))
    eps = float(jnp.finfo(right.dtype).eps)

    def solve(apply: Callable[[Array], Array], right: Array) -> Array:
        # If all limits bind, rounding leaves a part of `right` in the null space, whose curvature is a rounding of 0.
        return conjugate_gradients(apply, right, 2 * right.shape[1] + 20, 10 * eps, 4 * eps)

    solution = lax.custom_linear_solve(matrix, right, solve, symmetric=True)
    u_dot = scale * solution
    v_dot = columns - inverse * _column_sums(slopes * u_dot)
    return potentials, Potentials(*(TwoFloat(jnp.zeros_like(dot), dot) for dot in (u_dot, v_dot)))


def _position(problem: Problem, potentials: Potentials) -> tuple[Array, Array]:
    """Returns the differentiable position of partly selected entries (1 elsewhere), and which entries these are."""
    x, lam = problem.x, problem.lam
    fixed, at = lax.stop_gradient((problem, potentials))
    reduced = _reduced_scores(fixed.x, at)
    part = (reduced > 0) & (reduced < fixed.lam)
    # These differences are 0 and carry the derivative.
    moved = choose(part, x - fixed.x, 0.0) - (potentials.u.lo - at.u.lo) - (potentials.v.lo - at.v.lo)
    return choose(part, ratio(choose(part, reduced + moved, fixed.lam), lam), 1.0), part


def solve(problem: Problem, p: float, max_iter: Array, tolerance: Array) -> tuple[Array, Array, Array]:
    """Returns the plan, and per matrix ``(matrices, 1)`` the iterations and the largest violation of a marginal."""
    state = _solve(lax.stop_gradient(problem), p, max_iter, tolerance)
    potentials = _with_derivatives(problem, state.at, p)
    inner, part = _position(problem, potentials)
    zero_or_one = (lax.stop_gradient(_reduced_scores(problem.x, state.at)) > 0).astype(inner.dtype)
    plan = choose(part, power(inner, dual_exponent(p)), zero_or_one)
    return choose(jnp.isnan(state.off), jnp.nan, plan), state.iterations[:, 0], state.off[:, 0]


def conjugate_gradients(
    matrix: Callable[[Array], Array], rhs: Array, iterations: int, tolerance: float, min_curvature: Array | float = 0.0
) -> Array:
    """Returns the solution of ``matrix(y) = rhs`` for each of a batch of symmetric positive semidefinite matrices.

    Each system has its own residual, while ``jax.scipy.sparse.linalg.cg`` would measure one over the whole batch.

    Args:
      matrix: the linear map, from and to arrays shaped like ``rhs``.
      rhs: right-hand sides, one system for each index of the first axis, orthogonal to the null space.
      iterations: the most iterations.
      tolerance: the norm of the residual at which a system stops, relative to that of its ``rhs``.
      min_curvature: the curvature per squared length of a search direction at which a system stops, because the
        direction lies in the null space up to rounding.
    """

    class State(NamedTuple):
        y: Array
        residual: Array
        direction: Array
        squared_norm: Array
        steps: Array

    axes = tuple(range(1, rhs.ndim))
    # In this unit squares of residuals neither underflow nor overflow.
    unit = power_of_two(jnp.max(jnp.abs(rhs), axis=axes, keepdims=True, initial=0.0))
    rhs = rhs / unit

    def dot(a: Array, b: Array) -> Array:
        return jnp.sum(a * b, axis=axes, keepdims=True)

    least = tolerance**2 * dot(rhs, rhs)

    def unfinished(state: State) -> Array:
        return jnp.any(state.squared_norm > least) & (state.steps < iterations)

    def step(state: State) -> State:
        product = matrix(state.direction)
        curvature = dot(state.direction, product)
        negligible = min_curvature * dot(state.direction, state.direction)
        active = (state.squared_norm > least) & (curvature > negligible)
        length = choose(active, state.squared_norm / choose(active, curvature, 1.0), 0.0)
        y, residual = state.y + length * state.direction, state.residual - length * product
        squared_norm = choose(active, dot(residual, residual), 0.0)
        ratio = choose(active, squared_norm / choose(active, state.squared_norm, 1.0), 0.0)
        return State(y, residual, residual + ratio * state.direction, squared_norm, state.steps + 1)

    start = State(jnp.zeros_like(rhs), rhs, rhs, dot(rhs, rhs), jnp.zeros((), jnp.int32))
    initial = varying_as(start._replace(steps=rhs), rhs)._replace(steps=start.steps)
    return lax.while_loop(unfinished, step, initial).y * unit
