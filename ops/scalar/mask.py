"""The selection that all operators are built on, and the relaxed top-k mask, in the layout of the solvers.

At ``lam = 0`` entries are selected in full or not at all, and ties are broken by index. If no entry of a row is
selected in part, the operators have two one-sided derivatives in ``k``: a larger ``k`` begins to select the next entry,
and a smaller ``k`` takes from the last one selected. ``with_slope_in_k`` gives them the left derivative, and at
``k = 0``, where there is none, the right one.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from ..arithmetic import TwoFloat, choose, select
from ..interface import varying_as
from .equation import Equation, broadcast_where, dense, selection
from .rows import Rows, rows_without_derivative
from .threshold import Given, remainder, threshold


class Selected(NamedTuple):
    """The selection of every entry, and the threshold that decides it.

    Attributes:
      keys: the values by which the entries compete.
      gamma: the threshold of every row.
      z: the share of an entry that is selected, in [0, 1]; it has a derivative in ``k`` only strictly in between.
    """

    keys: tuple[Array, ...]
    gamma: TwoFloat
    z: tuple[Array, ...]


def select_topk(
    entries: tuple[Array, ...],
    k: Array,
    lam: Array,
    equation: Equation,
    where: tuple[Array, ...] | None = None,
    given: Given | None = None,
) -> Selected:
    """Returns the selection by the scalar equation; at ``lam = 0`` the ``k`` largest entries, ties broken by index.

    At ``lam = 0`` the last entry selected gets the remainder of a fractional ``k``. Entries with ``where`` false, and
    ``-inf`` for an increasing ``phi``, are never selected. A NaN makes its row NaN. ``given`` holds the arrays that
    ``entries`` were computed from, if these are not the operator's own arguments.
    """
    given = None if where is not None or equation.zero == "all" else given or Given(entries)
    keys = tuple(equation.keys(x, lam) for x in entries)
    if where is not None:
        keys = tuple(choose(present, s, -jnp.inf) for present, s in zip(where, keys, strict=True))
    seen, amount = (keys, k) if equation.zero != "all" else lax.stop_gradient((keys, k))
    gamma = threshold(seen, amount, lam, equation, given)
    if equation.kinked:  # the value of the pooled block stops at 0
        zero = jnp.zeros_like(k)
        gamma = select(gamma.hi < 0, TwoFloat(zero, zero), gamma)
    z = tuple(selection(s, gamma, lam, equation) for s in seen)
    if equation.zero != "none":
        tied = tied_selection(seen, gamma, amount, lam, equation.rows)
        z = tuple(part + rest for part, rest in zip(z, tied, strict=True))
    return Selected(keys, gamma, z)


def hard_selection(entries: tuple[Array, ...], k: Array, rows: Rows = Rows()) -> tuple[Array, ...]:
    """Returns the selection at ``lam = 0``: 1 for the ``k`` largest entries, 0 for the others; without a derivative."""
    return select_topk(entries, k, jnp.zeros_like(k), Equation(2.0, rows=rows, zero="all")).z


def gain_of_mask(s: Array, z: Array, lam: Array, equation: Equation) -> Array:
    """Returns the derivative of the mask in ``z``, which is 1."""
    return jnp.ones_like(s)


def marginal_share(k: Array, count: Array, first: Array, p: float) -> Array:
    """Returns the share of each of ``count`` entries that a change of ``k`` moves: 1 or, where ``first``, 0.

    It has the derivative in ``k`` that it has where they are selected in part, but for 0 if ``p < 2``, where that of
    ``z ** (p - 1)`` is infinite.
    """
    moved = (k - lax.stop_gradient(k)) / jnp.maximum(count, 1).astype(k.dtype)
    return choose(first, moved if p == 2 else 0.0, 1.0 + moved)


def mask_from(
    selected: Selected, entries: tuple[Array, ...], k: Array, lam: Array, equation: Equation
) -> tuple[Array, ...]:
    """Returns the mask from what is selected."""
    ones = tuple(map(jnp.ones_like, entries))
    z = with_slope_in_k(selected.z, ones, selected.keys, selected.z, k, lam, equation, gain_of_mask)
    if not equation.phi.even:
        return z
    return tuple(jnp.sign(x) * part for x, part in zip(entries, z, strict=True))


def mask_of(
    entries: tuple[Array, ...], k: Array, lam: Array, equation: Equation, *, where: tuple[Array, ...] | None = None
) -> tuple[Array, ...]:
    """Returns the mask of entries laid out as ``equation.rows`` says; with ``phi = abs`` it has their signs."""
    return mask_from(select_topk(entries, k, lam, equation, where), entries, k, lam, equation)


@jax.custom_batching.custom_vmap
def anywhere(condition: Array) -> Array:
    """Returns whether a condition holds at any entry: one boolean, even for a whole batch under ``vmap``.

    ``lax.cond`` on one boolean runs a single branch under ``vmap``; on a boolean per batch member it would run both.
    """
    return jnp.any(condition)


@anywhere.def_vmap
def _anywhere_in_a_batch(axis_size: int, in_batched: list[bool], condition: Array) -> tuple[Array, bool]:
    return anywhere(condition), False


def indices(entries: tuple[Array, ...], rows: Rows) -> tuple[Array, ...]:
    """Returns the index of every entry within its row, int32, counted over all arrays and all devices."""
    shard = jnp.int32(0) if rows.axis_name is None else lax.axis_index(rows.axis_name)
    offset, places = jnp.int32(0), []
    sizes = [s.shape[-1] if rows.axis == -1 else s.size for s in entries]
    for s, size in zip(entries, sizes, strict=True):
        by_row = rows.axis == -1
        index = lax.broadcasted_iota(jnp.int32, s.shape, s.ndim - 1) if by_row else lax.iota(jnp.int32, size)
        places.append(index.reshape(s.shape) + offset + shard * sum(sizes))
        offset = offset + size
    return tuple(places)


def _first(tied: tuple[tuple[Array, Array], ...], quota: Array, bound: int, rows: Rows) -> Array:
    """Returns, per row, the least index below which at least ``quota`` entries are tied; 0 for a quota of 0."""

    def unfinished(bracket: tuple[Array, Array]) -> Array:
        low, high = bracket
        return rows.loop_condition(jnp.any(high - low > 1))

    def halve(bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        mid = low + ((high - low) >> 1)
        below = rows.sum(lambda pair: pair[0] & (pair[1] < mid), tied)
        enough = below.astype(quota.dtype) >= quota
        return choose(enough, low, mid), choose(enough, mid, high)

    low = varying_as(jnp.zeros(quota.shape, jnp.int32), quota)
    high = choose(quota > 0, jnp.int32(bound), 0)
    return lax.while_loop(unfinished, halve, (low, high))[1]


def tied_selection(entries: tuple[Array, ...], gamma: TwoFloat, k: Array, lam: Array, rows: Rows) -> tuple[Array, ...]:
    """Returns the selected shares of entries that equal the threshold ``gamma``, in rows with ``lam = 0``.

    The first of these entries get 1 until ``k`` is used up; the last one gets the remainder of a fractional ``k``. All
    other entries, and all other rows, get 0. Not differentiable.
    """
    entries, value, k = lax.stop_gradient((entries, gamma.hi, k))
    bound = max(1, sum(s.shape[-1] if rows.axis == -1 else s.size for s in entries))
    if rows.axis_name is not None:
        bound = bound * lax.axis_size(rows.axis_name)

    def some(entries: tuple[Array, ...]) -> tuple[Array, ...]:
        counting = rows_without_derivative(rows, entries)

        def ties(s: Array) -> Array:
            return (s == value) & (s > -jnp.inf)

        above, among = counting.sum(lambda s: (s > value, ties(s)), entries)
        among = among.astype(k.dtype)
        quota = choose(lam == 0, jnp.clip(remainder(k, above), 0.0, among), 0.0)

        def by_index(entries: tuple[Array, ...]) -> tuple[Array, ...]:
            tied = tuple((ties(s), index) for s, index in zip(entries, indices(entries, rows), strict=True))
            last = _first(tied, jnp.ceil(quota), bound, counting) - 1
            left_over = quota - (jnp.ceil(quota) - 1.0)
            return tuple(
                choose(tie & (index < last), 1.0, choose(tie & (index == last), left_over, 0.0)) for tie, index in tied
            )

        def all_or_none(entries: tuple[Array, ...]) -> tuple[Array, ...]:
            return tuple(choose(quota > 0, ties(s).astype(s.dtype), 0.0) for s in entries)

        return lax.cond(anywhere((quota > 0) & (quota < among)), by_index, all_or_none, entries)

    def none(entries: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(map(jnp.zeros_like, entries))

    return lax.cond(anywhere(lam == 0), some, none, entries)


def marginal_change(s: Array, z: Array, k: Array, p: float) -> tuple[Array, Array]:
    """Returns, of rows ``(rows, n)``, whether they select nothing, and 0 with the derivative of ``marginal_share``.

    It is 0 with none in rows that select an entry in part. ``z`` is a constant to differentiation.
    """
    first = jnp.all(z == 0, axis=-1, keepdims=True)
    signed = choose(first, s, choose(z > 0, -s, -jnp.inf))
    count = jnp.sum(signed == jnp.max(signed, axis=-1, keepdims=True), axis=-1, keepdims=True, dtype=jnp.int32)
    share = marginal_share(k, count, first, p)
    in_part = jnp.any((z > 0) & (z < 1), axis=-1, keepdims=True)
    return first, choose(in_part, 0.0, share - lax.stop_gradient(share))


Gain = Callable[[Array, Array, Array, Equation], Array]  # of key, share, lam and equation: the derivative in the share


@functools.partial(jax.custom_jvp, nondiff_argnums=(6, 7))
def with_slope_in_k(
    y: tuple[Array, ...],
    signs: tuple[Array, ...],
    keys: tuple[Array, ...],
    z: tuple[Array, ...],
    k: Array,
    lam: Array,
    equation: Equation,
    gain: Gain,
) -> tuple[Array, ...]:
    """Returns ``y``, with a derivative in ``k`` in rows that select all or nothing of every entry.

    Rows with a ``z`` strictly between 0 and 1 keep the derivative of ``y``. ``signs`` are those that the operator gives
    to its values. ``gain`` returns the derivative of ``|y|`` in ``z`` from the key, ``z`` and ``lam``.
    """
    return y


@functools.partial(with_slope_in_k.defjvp, symbolic_zeros=True)
def _with_slope_in_k_jvp(equation, gain, primals, tangents):
    y, signs, keys, z, k, lam = primals
    y_dot, k_dot = tuple(map(dense, tangents[0], y)), tangents[4]
    y = with_slope_in_k(*primals, equation, gain)
    if isinstance(k_dot, SymbolicZero):
        return y, y_dot
    rows = equation.rows

    some, in_part = rows.sum(lambda part: (part > 0, (part > 0) & (part < 1)), z)
    in_part = (in_part > 0) & (lam > 0)
    # If k exceeds what is selected, the row has no more entries to select.
    selected = some.astype(k.dtype)
    first = k == 0
    # A change of k moves the smallest selected entries, or the largest of all if k is 0.
    signed = tuple(choose(first, s, choose(part > 0, -s, -jnp.inf)) for s, part in zip(keys, z, strict=True))
    extreme = rows.max(lambda value: value, signed)
    marginal = tuple((value == extreme) & (extreme > -jnp.inf) for value in signed)
    if equation.zero != "none":
        # If ties are broken by index, only the last selected entry moves, or the first one if k is 0.
        places = tuple(choose(first, -place, place) for place in indices(keys, rows))
        last = rows.max(
            lambda pair: choose(pair[0], pair[1], jnp.iinfo(jnp.int32).min),
            tuple(zip(marginal, places, strict=True)),
        )
        marginal = tuple(m & ((place == last) | (lam > 0)) for m, place in zip(marginal, places, strict=True))
    count = rows.sum(lambda m: m, marginal)
    moves = ~in_part & (k <= selected)
    per_entry = choose(moves, k_dot / jnp.maximum(count, 1).astype(k.dtype), 0.0)
    share = marginal_share(k, count, first, equation.p)
    slopes = (
        choose(m, sign * gain(choose(m, s, 1.0), share, lam, equation), 0.0) * broadcast_where(m, per_entry)
        for m, s, sign in zip(marginal, keys, signs, strict=True)
    )
    return y, tuple(dot + slope for dot, slope in zip(y_dot, slopes, strict=True))
