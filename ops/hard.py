"""The exact, unrelaxed top-k selection, by search for the k-th largest value instead of a sort."""

import functools

import jax.numpy as jnp
from jax import Array, lax

from ops.equation import Equation
from ops.rootfinding import Evaluation, find_root
from ops.rows import Rows, solve_rows
from ops.threshold import guess, remainder
from ops.twofloat import TwoFloat, inherit_sharding


def _kth_value(entries: tuple[Array, ...], k: Array, _: Array, rows: Rows) -> TwoFloat:
    """The least float, per row, that at most ``k`` entries exceed; ``hi`` alone says it."""
    limits = jnp.finfo(k.dtype)
    entries = tuple(jnp.minimum(s, limits.max) for s in entries)
    available = rows.count(lambda s: s > -jnp.inf, entries).astype(k.dtype)
    invalid = rows.count(jnp.isnan, entries) > 0
    k = jnp.where(invalid, jnp.nan, jnp.minimum(k, available))

    def evaluate(gamma: TwoFloat) -> Evaluation:
        excess = -remainder(k, rows.count(lambda s: s > gamma.hi, entries))
        return Evaluation(
            excess=excess,
            step=excess,
            trusted=jnp.zeros_like(excess, bool),
            converged=excess == 0,
            resolution=limits.eps * jnp.abs(gamma.hi),  # what lies between neighbouring floats
        )

    start, density = guess(entries, k, available, jnp.zeros_like(k), Equation(p=2.0, rows=rows))
    return find_root(evaluate, start, density, float(limits.min), float(limits.max), extended=False).right


def _indices(entries: tuple[Array, ...], rows: Rows) -> tuple[Array, ...]:
    """Position of every entry within its row, counted over all arrays and all devices."""
    shard = jnp.int32(0) if rows.axis_name is None else lax.axis_index(rows.axis_name)
    offset, indices = jnp.int32(0), []
    sizes = [s.shape[-1] if rows.axis == -1 else s.size for s in entries]
    for s, size in zip(entries, sizes, strict=True):
        if rows.axis == -1:
            index = lax.broadcasted_iota(jnp.int32, s.shape, s.ndim - 1)
        else:
            index = lax.iota(jnp.int32, size).reshape(s.shape)
        indices.append(index + offset + shard * sum(sizes))
        offset = offset + size
    return tuple(indices)


def _first(tied: tuple[tuple[Array, Array], ...], quota: Array, bound: int, rows: Rows) -> Array:
    """The least index, per row, below which there are at least ``quota`` tied entries; 0 where none are wanted."""

    def unfinished(bracket: tuple[Array, Array]) -> Array:
        low, high = bracket
        return jnp.any(high - low > 1)

    def halve(bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        mid = low + (high - low) // 2
        below = rows.count(lambda pair: pair[0] & (pair[1] < mid), tied)
        enough = below.astype(quota.dtype) >= quota
        return jnp.where(enough, low, mid), jnp.where(enough, mid, high)

    wanted = quota > 0
    low = inherit_sharding(jnp.zeros(quota.shape, jnp.int32), quota)
    high = jnp.where(wanted, jnp.int32(bound), 0)
    return lax.while_loop(unfinished, halve, (low, high))[1]


def hard_selection(entries: tuple[Array, ...], k: Array, rows: Rows = Rows()) -> tuple[Array, ...]:
    """The selection as the regularisation vanishes: 1 for the ``k`` largest entries, 0 for the others.

    Ties are broken by index, the first coming first. For a real ``k`` the ``ceil(k)``-th entry gets what is left
    over. ``-inf`` entries are never selected. A row with a NaN is NaN. Not differentiable.

    Args:
      entries: as in ``ops.threshold``.
      k: how much is selected, one value per row.
      rows: layout of the entries.
    """
    entries = tuple(lax.stop_gradient(s) for s in entries)
    k = lax.stop_gradient(k)
    find = functools.partial(_kth_value, rows=rows)
    value = solve_rows(find, entries, k, jnp.ones_like(k), rows).hi
    infinite = rows.count(lambda s: s == jnp.inf, entries).astype(k.dtype)
    value = jnp.where((infinite >= k) & ~jnp.isnan(value), jnp.inf, value)  # the search knows finite values alone
    tied = tuple((s == value, index) for s, index in zip(entries, _indices(entries, rows), strict=True))
    above = rows.count(lambda s: s > value, entries)
    among = rows.count(lambda pair: pair[0], tied)
    quota = jnp.clip(remainder(k, above), 0.0, among.astype(k.dtype))
    bound = max(1, sum(s.shape[-1] if rows.axis == -1 else s.size for s in entries))
    if rows.axis_name is not None:
        bound = bound * lax.axis_size(rows.axis_name)
    last = _first(tied, jnp.ceil(quota), bound, rows) - 1
    leftover = quota - (jnp.ceil(quota) - 1.0)

    def select(s: Array, tie: Array, index: Array) -> Array:
        chosen = jnp.where(tie & (index < last), 1.0, jnp.where(tie & (index == last), leftover, 0.0))
        return jnp.where(jnp.isnan(value), jnp.nan, jnp.where(s > value, 1.0, chosen))

    return tuple(select(s, tie, index) for s, (tie, index) in zip(entries, tied, strict=True))
