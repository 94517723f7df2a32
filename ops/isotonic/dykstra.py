"""Dykstra's alternating projections (Algorithm 1), for ``p = 2``.

The cone of decreasing vectors is the intersection of ``C_1 = {v_1 >= v_2, v_3 >= v_4, ...}`` and
``C_2 = {v_2 >= v_3, v_4 >= v_5, ...}``, onto each of which a projection averages the pairs out of order. Information
travels one entry per projection: a pooled block of m entries takes about m ** 2 iterations.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ..scalar.choice import choose
from .problem import Problem


class Iterate(NamedTuple):
    """The state of the iteration, all of shape ``(rows, n)``.

    Attributes:
      v: the iterate.
      first: what the projections onto ``C_1`` have taken away, the paper's ``p``.
      second: what those onto ``C_2`` have, the paper's ``q``.
    """

    v: Array
    first: Array
    second: Array


def targets(problem: Problem, s: Array, w: Array, lam: Array) -> tuple[Array, Array]:
    """The projection that the problem is, ``min sum_i c_i / (2 lam) (v_i - m_i) ** 2``: returns ``m`` and ``c``."""
    if problem.linear:
        return s - lam * w, jnp.ones_like(s)
    return s / (1.0 + lam * w), 1.0 + lam * w


def start(m: Array) -> Iterate:
    """The state before the first iteration."""
    return Iterate(m, jnp.zeros_like(m), jnp.zeros_like(m))


def iterate(state: Iterate, c: Array) -> Iterate:
    """One projection onto ``C_1`` and one onto ``C_2`` (the linear terms of the paper are in the targets here)."""
    corrected = state.v + state.first
    y = _project(corrected, c, 0)
    first = corrected - y
    corrected = y + state.second
    v = _project(corrected, c, 1)
    return Iterate(v, first, corrected - v)


def linked(state: Iterate) -> Array:
    """Which neighbours are held together, bool, shape ``(rows, n)``: entry i to its successor, the last never.

    A multiplier that is not 0 says so exactly; closeness of values would not, since a block's values draw close
    only slowly.
    """
    starts = _starts(state.v.shape[1], 0)
    return (choose(starts, state.first != 0, state.second != 0)) & _has_successor(state.v.shape[1])


def _project(v: Array, c: Array, offset: int) -> Array:
    """Weighted projection onto the vectors whose pairs ``(offset, offset + 1), ...`` are in order."""
    n = v.shape[1]
    is_first = _starts(n, offset) & _has_successor(n)
    successor, weight = jnp.roll(v, -1, axis=1), jnp.roll(c, -1, axis=1)
    violated = is_first & (v < successor)
    mean = (c * v + weight * successor) / (c + weight)
    mended = choose(violated, mean, v)
    return choose(jnp.roll(violated, 1, axis=1), jnp.roll(mean, 1, axis=1), mended)


def _starts(n: int, offset: int) -> Array:
    return (jnp.arange(n) % 2 == offset).reshape(1, n)


def _has_successor(n: int) -> Array:
    return (jnp.arange(n) < n - 1).reshape(1, n)
