"""Pooling of neighbours: two halves, each in order already, put in order as a whole.

Where the last value of the left half lies below the first of the right one, the solution of the whole takes one value
``gamma`` on a stretch around the middle: on the entries of the left half below ``gamma``, and on those of the right
half above it. It is the root of

    sum_{left, v_i < gamma} h_i'(gamma)  +  sum_{right, v_i > gamma} h_i'(gamma)  =  0,

where the first sum increases from 0 and the second one to 0. That is a scalar equation again; the one of ``w = 1_k`` is
the case of a left half of ones and a right half of zeros. Which blocks there are need not be kept track of.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from ..scalar.choice import choose
from ..scalar.rootfinding import End, Evaluation, find_root
from ..scalar.twofloat import TwoFloat, difference, select
from .problem import Problem, span


class Segments:
    """Rows of ``n`` entries cut into segments of ``2 ** (level + 1)``; ``n`` is a multiple of the largest.

    The level may be traced: one compiled program then serves all of them. Scalars of segments come in arrays of shape
    ``(rows, n / 2)``, as many as there are segments of the lowest level; the first ones are used.
    """

    def __init__(self, shape: tuple[int, ...], level: Array | int, levels: int) -> None:
        """Segments of rows of this shape, whose level is in ``range(levels)``."""
        self.rows, self.n = shape
        self.level, self.levels = level, levels

    def _at_level(self, function: Callable[[int], Array]) -> Array:
        branches = [lambda level=level: function(level) for level in range(self.levels)]
        return branches[0]() if self.levels == 1 else lax.switch(self.level, branches)

    def sum(self, values: Array) -> Array:
        """Sum over each segment."""

        def total(level: int) -> Array:
            count = self.n >> (level + 1)
            sums = jnp.sum(values.reshape(self.rows, count, -1), axis=2)
            return jnp.pad(sums, ((0, 0), (0, self.n // 2 - count)))

        return self._at_level(total)

    def spread(self, scalars: Array) -> Array:
        """The scalar of its segment for every entry."""

        def repeat(level: int) -> Array:
            count = self.n >> (level + 1)
            repeated = jnp.broadcast_to(scalars[:, :count, None], (self.rows, count, 2 << level))
            return repeated.reshape(self.rows, self.n)

        return self._at_level(repeat)

    def middle(self, values: Array) -> tuple[Array, Array]:
        """The entries on either side of the middle of each segment; anything where there is no segment."""
        first = jnp.arange(self.n // 2) << (jnp.asarray(self.level) + 1)
        left = jnp.minimum(first + (1 << jnp.asarray(self.level)) - 1, self.n - 2)
        return values[:, left], values[:, left + 1]

    def is_left(self) -> Array:
        """Whether an entry is in the left half of its segment, shape ``(1, n)``."""
        return ((jnp.arange(self.n) >> jnp.asarray(self.level)) % 2 == 0).reshape(1, self.n)

    def is_last(self) -> Array:
        """Whether an entry is the last of its segment, shape ``(1, n)``."""
        size = 2 << jnp.asarray(self.level)
        return ((jnp.arange(self.n) + 1) % size == 0).reshape(1, self.n)

    def exists(self) -> Array:
        """Which scalars belong to a segment, shape ``(1, n / 2)``."""
        return (jnp.arange(self.n // 2) < (self.n >> (jnp.asarray(self.level) + 1))).reshape(1, -1)


def merge(
    problem: Problem,
    v: TwoFloat,
    s: Array,
    w: Array,
    lam: Array,
    tilt: Array,
    segments: Segments,
    linked: Array | None = None,
) -> tuple[TwoFloat, Array]:
    """Minimises ``sum_i h_i(v_i) + tilt_i * v_i`` over ``v`` decreasing in each segment, given that for both halves.

    Args:
      problem: exponent and nonlinearity.
      v: minimisers of the halves, shape ``(rows, n)``.
      s: entries, same shape.
      w: weights, same shape.
      lam: strength of the regularisation, shape ``(rows, 1)``.
      tilt: slopes of the linear terms, broadcasting against ``s``.
      segments: what is put in order.
      linked: which neighbours are held together so far, entry i to its successor, where ``tilt`` is one per row.

    Returns:
      The minimisers of the wholes, same shape, and which neighbours are held at one value by this merge: bool, same
      shape, true for an entry that is held to its successor.
    """
    eps = jnp.finfo(s.dtype).eps
    is_left = segments.is_left()
    (low_hi, high_hi), (low_lo, high_lo) = segments.middle(v.hi), segments.middle(v.lo)
    violated = (difference(TwoFloat(high_hi, high_lo), TwoFloat(low_hi, low_lo)) > 0) & segments.exists()
    if linked is not None:
        # Of two entries on their own, of one weight and in order, only rounding makes minimisers that are not.
        (low_s, high_s), (low_w, high_w) = segments.middle(s), segments.middle(w)
        before, after = segments.middle(jnp.roll(linked, 1, axis=1))[0], segments.middle(linked)[1]
        violated = violated & (before | after | (low_w != high_w) | (low_s < high_s))

    def everywhere(gamma: TwoFloat) -> TwoFloat:
        return TwoFloat(segments.spread(gamma.hi), segments.spread(gamma.lo))

    def evaluate(scalars: TwoFloat) -> Evaluation:
        gamma = everywhere(scalars)
        value = gamma.hi + gamma.lo
        beyond = difference(v, gamma)
        inside = choose(is_left, beyond < 0, beyond > 0)
        t = choose(inside, (s - gamma.hi) - gamma.lo, 0.0)
        pull, push = problem.dual(t, lam), w * problem.slope(value) + tilt

        def total(values: Array) -> Array:
            return segments.sum(choose(inside, values, 0.0))

        excess = total(pull - push)
        pulls, pushes = total(jnp.abs(pull)), total(jnp.abs(push))
        stiffness, bend = total(problem.dual_slope(t, lam)), total(w * problem.curvature(value))
        step = excess / (stiffness + bend)
        return Evaluation(
            excess=excess,
            level=excess,
            step=step,
            trusted=jnp.isfinite(step),
            converged=((jnp.abs(excess) <= eps * (pulls + pushes)) & (pulls + pushes < jnp.inf)) | ~violated,
            scale=span(pulls, stiffness, pushes, bend),
        )

    start = 0.5 * low_hi + 0.5 * high_hi
    # The root lies between the two values in the middle, which may share a float.
    lower, upper = jnp.nextafter(low_hi, -jnp.inf), jnp.nextafter(high_hi, jnp.inf)
    root = find_root(evaluate, start, End(lower, jnp.inf), End(upper, -jnp.inf)).point
    low, high = TwoFloat(low_hi, low_lo), TwoFloat(high_hi, high_lo)
    root = select(difference(root, low) < 0, low, select(difference(root, high) > 0, high, root))
    gamma = everywhere(root)
    beyond = difference(v, gamma)
    # What one half adds may be too little to move the value of the other, which is held all the same.
    pooled = segments.spread(violated) & choose(is_left, beyond <= 0, beyond >= 0)
    # Equal values alone would not tell: entries that tie without being held together move on their own.
    return select(pooled, gamma, v), pooled & jnp.roll(pooled, -1, axis=1) & ~segments.is_last()
