"""Dykstra's alternating projections (Algorithm 1), for ``p = 2``.

The cone of decreasing vectors is the intersection of ``C_1 = {v_1 >= v_2, v_3 >= v_4, ...}`` and
``C_2 = {v_2 >= v_3, v_4 >= v_5, ...}``. The projection onto each averages the pairs that are out of order. Information
travels one entry per projection, so a pooled block of m entries takes about m ** 2 iterations.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ..scalar.arithmetic import choose
from .problem import Problem


class Iterate(NamedTuple):
    """The state of the iteration, all of shape ``(rows, n)``.

    Attributes:
      v: the iterate.
      first: the correction for ``C_1``, the paper's ``p``: the last input of its projection minus the output.
      second: the correction for ``C_2``, the paper's ``q``.
    """

    v: Array
    first: Array
    second: Array


def targets(problem: Problem, s: Array, w: Array, lam: Array) -> tuple[Array, Array]:
    """Returns ``m`` and ``c`` of the equivalent weighted projection ``min sum_i c_i / (2 lam) (v_i - m_i) ** 2``."""
    if problem.linear:
        return s - lam * w, jnp.ones_like(s)
    return s / (1.0 + lam * w), 1.0 + lam * w


def iterate(state: Iterate, c: Array) -> Iterate:
    """Projects onto ``C_1``, then onto ``C_2`` (the targets contain the linear terms of the paper)."""
    corrected = state.v + state.first
    y = _project(corrected, c, 0)
    first = corrected - y
    corrected = y + state.second
    v = _project(corrected, c, 1)
    return Iterate(v, first, corrected - v)


def linked(state: Iterate) -> Array:
    """Returns which neighbours are ``linked``.

    A non-zero correction decides this exactly. Close values would not, since the values of a block converge slowly.
    """
    starts = _starts(state.v.shape[1], 0)
    return (choose(starts, state.first != 0, state.second != 0)) & _has_successor(state.v.shape[1])


def _project(v: Array, c: Array, offset: int) -> Array:
    """Returns the weighted projection onto vectors whose pairs ``(offset, offset + 1), ...`` are in order."""
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
