"""The scalar equation over the rows and over the columns of a matrix at once: a plan with both its marginals limited.

    T_ij = clip((x_ij - u_i - v_j) / lam, 0, 1) ** (1 / (p - 1)),
    sum_j T_ij = k_i,        sum_i T_ij <= b_j,        v_j >= 0, and 0 where the column is below its limit.

That is the maximiser of ``<x, T> - lam / p * ||T||_p^p`` within these marginals. The potentials ``u`` and ``v``
minimise the dual, which is convex. Given one of them, the other solves the scalar equation: of every row for ``u``, of
every column for ``v``. Taking turns is block-coordinate ascent of the dual, which converges, and slowly: hundreds of
turns. So ``v`` is always the best for ``u``, and ``u`` moves by Newton's method on what is left of the dual; the turn
is taken where that leads nowhere. The strength falls to ``lam`` from that at which all entries matter.

Arrays are ``(matrices, m, n)``; ``u`` and ``k`` are ``(matrices, m, 1)``, ``v`` and ``b`` ``(matrices, 1, n)``, ``lam``
``(matrices, 1, 1)``.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..interface.rowwise import varying_as
from .choice import choose
from .conjugate_gradients import conjugate_gradients
from .equation import Equation
from .powers import dual_exponent, power
from .threshold import threshold
from .twofloat import TwoFloat, select, shift

# A weaker strength is taken up where rows are this close to what they should select, and falls by this factor.
_CLOSE, _FALLS = 0.3, 4.0
# Newton's matrix is damped by this share of the residual, and a step is cut to a quarter of itself, twice.
_DAMPED, _SHORTEST = 0.1, 0.05
_NEWTON_ITERATIONS, _NEWTON_TOLERANCE = 30, 1e-3


class Problem(NamedTuple):
    """What is asked for: scores, what rows select, limits of columns, strength."""

    x: Array
    k: Array
    b: Array
    lam: Array


class Potentials(NamedTuple):
    """The multipliers of rows and columns; ``u.hi`` is a constant to differentiation."""

    u: TwoFloat
    v: Array


class Solved(NamedTuple):
    """Potentials, the turns it took to find them, and how far marginals are off; the last two ``(matrices, 1)``."""

    potentials: Potentials
    iterations: Array
    residual: Array


def _over(axis: int, value: Array) -> Array:
    return jnp.sum(value, axis=axis, keepdims=True)


_of_rows, _of_columns = functools.partial(_over, 2), functools.partial(_over, 1)


def _largest(value: Array) -> Array:
    return jnp.max(value, axis=(1, 2), keepdims=True)


def _dot(a: Array, b: Array) -> Array:
    return jnp.sum(a * b, axis=(1, 2), keepdims=True)


def _thresholds(s: Array, k: Array, lam: Array, p: float) -> TwoFloat:
    """Of every row of every matrix."""
    count, m, n = s.shape
    of_row = jnp.broadcast_to(lam, (count, m, 1)).reshape(-1, 1)
    found = threshold((s.reshape(-1, n),), k.reshape(-1, 1), of_row, Equation(p))
    return TwoFloat(*(value.reshape(count, m, 1) for value in found))


def _apart(x: Array, potentials: Potentials) -> Array:
    return ((x - potentials.v) - potentials.u.hi) - potentials.u.lo


def _taken(x: Array, potentials: Potentials, lam: Array, p: float) -> tuple[Array, Array, Array]:
    """Position where an entry is taken in part, elsewhere 1; where that is; and how much is taken."""
    t = _apart(x, potentials) / lam
    part = (t > 0) & (t < 1)
    some = choose(part, t, 1.0)
    return some, part, choose(part, power(some, dual_exponent(p)), (t >= 1).astype(t.dtype))


def _rows_given(v: Array, problem: Problem, p: float) -> TwoFloat:
    return _thresholds(problem.x - v, problem.k, problem.lam, p)


def _columns_given(u: TwoFloat, problem: Problem, p: float) -> Array:
    nothing = jnp.zeros_like(problem.b)
    _, _, free = _taken(problem.x, Potentials(u, nothing), problem.lam, p)
    s = (problem.x - u.hi) - u.lo
    gamma = _thresholds(jnp.swapaxes(s, 1, 2), jnp.swapaxes(problem.b, 1, 2), problem.lam, p)
    v = jnp.swapaxes(gamma.hi + gamma.lo, 1, 2)
    below = _of_columns(free) <= problem.b
    return choose(below, 0.0, jnp.maximum(v, 0.0))


def _dual(taken: Array, potentials: Potentials, problem: Problem, p: float) -> Array:
    """The value of the dual, which is to be minimised."""
    s = _apart(problem.x, potentials)
    conjugate = choose(taken >= 1, s - problem.lam / p, taken * jnp.maximum(s, 0.0) * (1.0 - 1.0 / p))
    conjugate = choose(taken > 0, conjugate, 0.0)
    u = potentials.u.hi + potentials.u.lo
    return jnp.sum(conjugate, axis=(1, 2), keepdims=True) + _dot(problem.k, u) + _dot(problem.b, potentials.v)


class _Curvature(NamedTuple):
    """The second derivative of the dual where ``v`` follows ``u``, scaled so that its diagonal is about 1.

    With ``w`` the slopes of the plan, ``D`` their sums over rows and ``C`` over columns at their limit, it is
    ``D - w C^-1 w^T``, and this is ``1 - D^-1/2 w C^-1 w^T D^-1/2``: positive, or 0 along what moves ``u`` up and
    ``v`` down.
    """

    slopes: Array
    scale: Array  # D^-1/2; 0 where nothing is taken in part
    inverse: Array  # C^-1; 0 of columns below their limit

    def __call__(self, y: Array) -> Array:
        columns = self.inverse * _of_columns(self.slopes * (self.scale * y))
        return y - self.scale * _of_rows(self.slopes * columns)


def _curvature(some: Array, part: Array, v: Array, lam: Array, p: float) -> _Curvature:
    exponent = dual_exponent(p)
    slopes = choose(part, exponent * power(some, exponent - 1) / lam, 0.0)
    rows, columns = _of_rows(slopes), _of_columns(slopes)
    moving, tight = rows > 0, (v > 0) & (columns > 0)
    return _Curvature(
        slopes,
        choose(moving, lax.rsqrt(choose(moving, rows, 1.0)), 0.0),
        choose(tight, 1.0 / choose(tight, columns, 1.0), 0.0),
    )


class _State(NamedTuple):
    u: TwoFloat  # looked at next
    lam: Array
    start: TwoFloat  # from where the step was made, or `u` itself
    other: TwoFloat  # where to go if it does not help: the rows' turn
    direction: Array
    length: Array  # of the step; 0: none was made
    dual: Array  # at its start
    slope: Array
    residual: Array
    done: Array
    iterations: Array
    found: Potentials  # what is returned
    off: Array  # by how much its marginals are


def _off(potentials: Potentials, problem: Problem, p: float) -> Array:
    """How far rows are from what they select, and columns above their limits, or off those that bind."""
    _, _, taken = _taken(problem.x, potentials, problem.lam, p)
    over = _of_columns(taken) - problem.b
    columns = choose(potentials.v > 0, jnp.abs(over), jnp.maximum(over, 0.0))
    return jnp.maximum(_largest(jnp.abs(_of_rows(taken) - problem.k)), _largest(columns))


def _solve(problem: Problem, p: float, max_iter: Array, tolerance: Array) -> Solved:
    x, k, _, lam = problem
    finite = jnp.abs(x) < jnp.inf
    most = _largest(choose(finite, x, -jnp.inf))
    spread = jnp.maximum(most + _largest(choose(finite, -x, -jnp.inf)), 0.0)
    spread = choose(jnp.any(finite, axis=(1, 2), keepdims=True), spread, 0.0)

    # Without a plan potentials grow for ever, until no digit is left for the entries. With one they differ by no more
    # than a path through all rows and columns can.
    size = _largest(choose(finite, jnp.abs(x), 0.0))
    bound = size + 2.0 * (x.shape[1] + x.shape[2]) * (spread + lam)

    def unfinished(state: _State) -> Array:
        return jnp.any(~state.done)

    def advance(state: _State) -> _State:
        now = problem._replace(lam=state.lam)
        v = _columns_given(state.u, now, p)
        here = Potentials(state.u, v)
        some, part, taken = _taken(x, here, now.lam, p)
        excess = _of_rows(taken) - k
        residual = _largest(jnp.abs(excess))
        dual = _dual(taken, here, now, p)

        enough = dual <= state.dual - 1e-4 * state.length * state.slope
        # In the end the dual does not show what is gained. Before, a smaller residual is no gain: turns would go round.
        sizes = _dot(k, jnp.abs(state.u.hi)) + _dot(problem.b, v) + jnp.abs(dual)
        same = dual <= state.dual + 64.0 * jnp.finfo(x.dtype).eps * sizes
        helped = (state.length == 0) | enough | (same & (residual < 0.9 * state.residual))
        shorter = 0.25 * state.length

        # Rows have the last word, so that each selects what it should up to rounding.
        turn = _rows_given(v, now, p)
        off = _off(Potentials(turn, v), problem, p)
        last = state.lam <= lam
        lost = jnp.isnan(residual) | jnp.isnan(state.u.hi).any(axis=1, keepdims=True)
        far = _largest(jnp.abs(state.u.hi)) > bound
        spent = (state.iterations + 1 >= max_iter) | (far & last)
        done = state.done | lost | spent | (last & (off <= tolerance))
        weaker = helped & ~last & (residual <= _CLOSE) & ~done
        given_up = ~helped & (shorter < _SHORTEST) & ~done

        matrix = _curvature(some, part, v, now.lam, p)
        damping = _DAMPED * jnp.minimum(1.0, residual)
        found = conjugate_gradients(
            lambda y: matrix(y) + damping * y, matrix.scale * excess, _NEWTON_ITERATIONS, _NEWTON_TOLERANCE
        )
        moved = (turn.hi - state.u.hi) + (turn.lo - state.u.lo)
        direction = choose(matrix.scale > 0, matrix.scale * found, moved)
        size = _largest(jnp.abs(direction))
        # Where a whole step leaves as much to do, the dual is flat: go further, till something comes in or goes out.
        further = choose((state.length >= 1.0) & (residual > 0.9 * state.residual), 4.0 * state.length, 1.0)
        long = further * size > spread
        length = choose(long, spread / choose(long, size, 1.0), further)

        new = helped & ~weaker
        start, length = select(new, state.u, state.start), choose(new, length, shorter)
        direction = choose(new, direction, state.direction)
        stepped = shift(start, length * direction)
        still = weaker | given_up | done
        u = select(given_up, state.other, select(weaker | done, state.u, stepped))
        return _State(
            u,
            # What is found in the end is of the strength asked for.
            choose(
                far | (state.iterations + 2 >= max_iter),
                lam,
                choose(weaker, jnp.maximum(lam, state.lam / _FALLS), state.lam),
            ),
            start,
            select(new, turn, state.other),
            direction,
            choose(still, 0.0, length),
            choose(new, dual, state.dual),
            choose(new, _dot(excess, direction), state.slope),
            choose(new, residual, state.residual),
            done,
            choose(state.done, state.iterations, state.iterations + 1),
            Potentials(select(state.done, state.found.u, turn), choose(state.done, state.found.v, v)),
            choose(state.done, state.off, choose(lost, jnp.nan, off)),
        )

    first = choose(max_iter > 1, jnp.maximum(lam, spread), lam)
    u = _thresholds(x, k, first, p)
    zero, nowhere = jnp.zeros_like(lam), jnp.zeros_like(k)
    nobody, none = jnp.zeros(lam.shape, bool), jnp.zeros(lam.shape, jnp.int32)
    found = Potentials(u, jnp.zeros_like(problem.b))
    per_matrix = _State(u, first, u, u, nowhere, zero, zero, zero, zero, nobody, none, found, zero)
    final = lax.while_loop(unfinished, advance, varying_as(per_matrix, (problem, u)))
    return Solved(final.found, final.iterations[:, 0], final.off[:, 0])


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def _attached(problem: Problem, potentials: Potentials, p: float) -> Potentials:
    """The potentials, which solve the problem, with their derivatives in it."""
    return potentials


@_attached.defjvp
def _attached_jvp(p, primals, tangents):
    """Implicit function theorem on the equations of all rows and columns: the second derivative of the dual, solved."""
    problem, given = primals
    moved = tangents[0]
    potentials = _attached(problem, given, p)
    v = lax.stop_gradient(potentials.v)
    some, part, _ = _taken(_still(problem, potentials), potentials, problem.lam, p)
    matrix = _curvature(some, part, v, problem.lam, p)
    slopes, scale, inverse = matrix
    flow = slopes * choose(part, moved.x - some * moved.lam, 0.0)
    columns = inverse * (_of_columns(flow) - moved.b)
    right = scale * (_of_rows(flow) - moved.k - _of_rows(slopes * columns))
    precise = 10 * float(jnp.finfo(right.dtype).eps)
    found = lax.custom_linear_solve(
        lambda y: matrix(y),
        right,
        lambda apply, right: conjugate_gradients(apply, right, 2 * right.shape[1] + 20, precise),
        symmetric=True,
    )
    u_dot = scale * found
    v_dot = columns - inverse * _of_columns(slopes * u_dot)
    return potentials, Potentials(TwoFloat(jnp.zeros_like(u_dot), u_dot), v_dot)


def _still(problem: Problem, potentials: Potentials) -> Array:
    """The entries, of which those that are not taken in part are constants: of an infinite one nothing passes on."""
    fixed = lax.stop_gradient(potentials)
    t = _apart(lax.stop_gradient(problem.x), fixed) / lax.stop_gradient(problem.lam)
    outside = lax.stop_gradient(choose(t >= 1, 2.0, -1.0) * problem.lam) + (fixed.u.hi + fixed.v)
    return choose((t > 0) & (t < 1), problem.x, outside)


def solve(problem: Problem, p: float, max_iter: Array, tolerance: Array) -> tuple[Array, Solved]:
    """The plan, and how it was found."""
    found = _solve(lax.stop_gradient(problem), p, max_iter, tolerance)
    potentials = _attached(problem, found.potentials, p)
    fixed = lax.stop_gradient((problem, found.potentials))
    _, part, constant = _taken(fixed[0].x, fixed[1], fixed[0].lam, p)
    t = choose(part, _apart(_still(problem, potentials), potentials) / problem.lam, 1.0)
    plan = choose(part, power(t, dual_exponent(p)), constant)
    return choose(jnp.isnan(found.residual)[:, :, None], jnp.nan, plan), found
