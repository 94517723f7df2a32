"""Block coordinate ascent on the dual (App. A.8), for every ``p``.

The dual has one multiplier ``alpha_i >= 0`` for each constraint ``v_i >= v_{i+1}``. With all others fixed, the optimal
``alpha_i`` is the multiplier of the constraint in

    min_{v_i >= v_{i+1}}  h_i(v_i) + alpha_{i-1} v_i  +  h_{i+1}(v_{i+1}) - alpha_{i+1} v_{i+1},

so all multipliers of one parity are optimised at once. For ``p = 2`` the iterates are those of Dykstra's algorithm.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ..arithmetic import TwoFloat, choose
from .pav import Segments, merge
from .problem import Problem, minimisers


class Multipliers(NamedTuple):
    """The state of the iteration, of shape ``(rows, n)``.

    Attributes:
      v: the primal point that belongs to the multipliers.
      alpha: the multipliers: index i holds that of entry i and its successor, the last index 0.
    """

    v: Array
    alpha: Array


def start(problem: Problem, s: Array, w: Array, lam: Array) -> tuple[Multipliers, Callable[[Multipliers], Multipliers]]:
    """Returns the first state, and the function that returns the next one.

    An iteration maximises over the multipliers of pairs ``(1, 2), (3, 4), ...``, then over those of the other pairs.
    """
    v = minimisers(problem, s, w, lam)
    ascend = functools.partial(_ascend, problem=problem, s=s, w=w, lam=lam)
    return Multipliers(v.hi + v.lo, jnp.zeros_like(s)), lambda state: ascend(ascend(state, offset=0), offset=1)


def linked(state: Multipliers) -> Array:
    """Returns which neighbours are ``linked``."""
    return state.alpha > 0


def _ascend(state: Multipliers, problem: Problem, s: Array, w: Array, lam: Array, offset: int) -> Multipliers:
    rows, n = s.shape
    index = jnp.arange(n).reshape(1, n)
    is_first = (index % 2 == offset) & (index < n - 1)
    is_second = jnp.roll(is_first, 1, axis=1)
    before = choose(index > 0, jnp.roll(state.alpha, 1, axis=1), 0.0)  # alpha_{i-1}
    # The tilt of an entry leaves out the multiplier of its own pair; an entry without a partner keeps both multipliers.
    tilt = choose(is_second, 0.0, before) - choose(is_first, 0.0, state.alpha)
    alone = minimisers(problem, s, w, lam, tilt)

    # Pairs of odd offset begin after the first entry. Padding replaces a missing partner, in order with its entry.
    back = (n - offset) % 2
    extreme = float(jnp.finfo(s.dtype).max) / 8

    def by_pairs(value: Array, fill: float) -> Array:
        """Returns the first entries of all pairs, then the second ones."""
        padded = jnp.pad(value, ((0, 0), (0, back)), constant_values=-fill)
        padded = jnp.pad(padded, ((0, 0), (offset, 0)), constant_values=fill)
        return jnp.concatenate([padded[:, ::2], padded[:, 1::2]], axis=1)

    def in_order(value: Array) -> Array:
        pairs = value.reshape(rows, 2, -1).swapaxes(1, 2)
        return pairs.reshape(rows, -1)[:, offset : offset + n]

    apart, entries = TwoFloat(by_pairs(alone.hi, extreme), by_pairs(alone.lo, 0.0)), by_pairs(s, extreme)
    segments = Segments(entries.shape[1], 0, 1)
    # Padding at the end has the other sign.
    lam_of_pairs = jnp.abs(by_pairs(lam, 1.0)) if lam.shape == s.shape else lam
    v, pooled = merge(problem, apart, entries, by_pairs(w, 0.0), lam_of_pairs, by_pairs(tilt, 0.0), segments)
    v_hi, v_lo, held = in_order(v.hi), in_order(v.lo), in_order(pooled)
    held = held & jnp.roll(held, -1, axis=1) & is_first
    t = (s - v_hi) - v_lo
    slope = w * problem.slope(v_hi + v_lo) - problem.dual(t, lam)  # h_i'(v_i), which is alpha_i - alpha_{i-1}
    alpha = choose(held, jnp.maximum(slope + before, 0.0), 0.0)
    return Multipliers(v_hi + v_lo, choose(is_first, alpha, state.alpha))
