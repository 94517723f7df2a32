"""Dykstra's alternating projections (Algorithm 1), for ``p = 2``.

The cone of decreasing vectors is the intersection of ``C_1 = {v_1 >= v_2, v_3 >= v_4, ...}`` and
``C_2 = {v_2 >= v_3, v_4 >= v_5, ...}``. The projection onto each averages the pairs that are out of order. Information
travels one entry per projection, so a pooled block of m entries takes about m ** 2 iterations.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ..arithmetic import choose
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


def start(problem: Problem, s: Array, w: Array, lam: Array) -> tuple[Iterate, Callable[[Iterate], Iterate]]:
    """Returns the first state, and the function that returns the next one.

    The problem is the weighted projection ``min sum_i c_i (v_i - m_i) ** 2``.
    """
    c = problem.precision(w, lam)
    m = s - lam * w if problem.linear else s / (1.0 + lam * w)
    zero = jnp.zeros_like(m)
    return Iterate(m, zero, zero), functools.partial(_iterate, c=c)


def _iterate(state: Iterate, c: Array) -> Iterate:
    """Returns the state after a projection onto ``C_1`` and one onto ``C_2``."""
    corrected = state.v + state.first
    y = _project(corrected, c, 0)
    first = corrected - y
    corrected = y + state.second
    v = _project(corrected, c, 1)
    return Iterate(v, first, corrected - v)


def linked(state: Iterate) -> Array:
    """Returns which neighbours are ``linked``.

    Their corrections are not 0, exactly. Their values need not be close, since those of a block converge slowly.
    """
    index = _indices(state.v)
    return choose(index % 2 == 0, state.first != 0, state.second != 0) & (index < index.size - 1)


def _project(v: Array, c: Array, offset: int) -> Array:
    """Returns the weighted projection onto vectors whose pairs ``(offset, offset + 1), ...`` are in order."""
    index = _indices(v)
    is_first = (index % 2 == offset) & (index < index.size - 1)
    successor, weight = jnp.roll(v, -1, axis=1), jnp.roll(c, -1, axis=1)
    violated = is_first & (v < successor)
    mean = (c * v + weight * successor) / (c + weight)
    mended = choose(violated, mean, v)
    return choose(jnp.roll(violated, 1, axis=1), jnp.roll(mean, 1, axis=1), mended)


def _indices(v: Array) -> Array:
    return jnp.arange(v.shape[1]).reshape(1, -1)
