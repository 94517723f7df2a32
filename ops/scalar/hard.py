"""Hard selection at ``lam = 0``: entries are selected in full or not at all, and ties are broken by index."""

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..interface.rowwise import varying_as
from .choice import choose
from .cpu import rows_without_derivative
from .rows import Rows
from .threshold import remainder
from .twofloat import TwoFloat


@jax.custom_batching.custom_vmap
def anywhere(condition: Array) -> Array:
    """Returns whether a condition holds at any entry: one boolean, even for a whole batch under ``vmap``.

    ``lax.cond`` on it still runs one branch under ``vmap``; with a boolean per batch member it would run both.
    """
    return jnp.any(condition)


@anywhere.def_vmap
def _anywhere_in_a_batch(axis_size: int, in_batched: list[bool], condition: Array) -> tuple[Array, bool]:
    return anywhere(condition), False


def indices(entries: tuple[Array, ...], rows: Rows) -> tuple[Array, ...]:
    """Returns the index of every entry within its row, int32, counted over all arrays and all devices."""
    shard = jnp.int32(0) if rows.axis_name is None else lax.axis_index(rows.axis_name)
    offset, found = jnp.int32(0), []
    sizes = [s.shape[-1] if rows.axis == -1 else s.size for s in entries]
    for s, size in zip(entries, sizes, strict=True):
        if rows.axis == -1:
            index = lax.broadcasted_iota(jnp.int32, s.shape, s.ndim - 1)
        else:
            index = lax.iota(jnp.int32, size).reshape(s.shape)
        found.append(index + offset + shard * sum(sizes))
        offset = offset + size
    return tuple(found)


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

    wanted = quota > 0
    low = varying_as(jnp.zeros(quota.shape, jnp.int32), quota)
    high = choose(wanted, jnp.int32(bound), 0)
    return lax.while_loop(unfinished, halve, (low, high))[1]


def tied_selection(entries: tuple[Array, ...], gamma: TwoFloat, k: Array, lam: Array, rows: Rows) -> tuple[Array, ...]:
    """Returns how much is selected of the entries that equal the threshold, in rows with ``lam = 0``.

    The first of them get 1 until ``k`` is used up; for a fractional ``k`` the last one gets the remainder. All other
    entries, and all other rows, get 0. Not differentiable.

    Args:
      entries: as in ``ops.scalar.threshold``.
      gamma: their threshold.
      k: how much is selected, one value per row.
      lam: strength of the regularisation, one value per row.
      rows: layout of the entries.
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
