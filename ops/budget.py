"""The scalar equation of entries with costs and caps: a relaxed fractional knapsack.

    z_i(gamma) = min((x_i - gamma * c_i)_+ / lam, u_i ** (p - 1)) ** (1 / (p - 1)),        sum_i c_i z_i(gamma) = k.

Its solution maximises ``<x, z> - lam / p * ||z||_p^p`` over ``0 <= z <= u, <c, z> = k``; ``gamma`` is the price of a
unit of the budget. With ``c = u = 1`` it is the equation of the relaxed mask. Entries compete by their value per unit
of cost, ``s_i = x_i / c_i``. An entry is bought in part if ``gamma < s_i < gamma + lam * u_i ** (p - 1) / c_i``. The
sum decreases in ``gamma``.

Arrays are ``(rows, n)``, scalars ``(rows, 1)``.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from .arithmetic import TwoFloat, choose, dual_exponent, power, row_sum, select
from .scalar.rootfinding import End, Evaluation, find_root

# A solution may miss the budget by this share of it.
_BUDGET_TOLERANCE = 1e-3


class Items(NamedTuple):
    """The entries of a knapsack.

    Attributes:
      worth: ``s``, the value of an entry per unit of its cost; ``-inf`` if it takes no part.
      cost: the cost of a unit, positive.
      cap: the largest amount of the entry, not negative.
    """

    worth: Array
    cost: Array
    cap: Array


def _position(items: Items, gamma: TwoFloat, lam: Array) -> Array:
    """Returns ``(x - gamma * c) / lam``, which is at most 0 for an entry that is not bought."""
    return ((items.worth - gamma.hi) - gamma.lo) * (items.cost / lam)


def _regimes(items: Items, gamma: TwoFloat, lam: Array, p: float) -> tuple[Array, Array, Array]:
    """Returns the position of every entry, which entries are bought in part, and which up to their cap."""
    t = _position(items, gamma, lam)
    capped = t >= _capped_position(items.cap, p)
    return t, (t > 0) & ~capped, capped & (t > 0)


def _capped_position(cap: Array, p: float) -> Array:
    """Returns ``u ** (p - 1)``, the position from which an entry is bought up to its cap."""
    return cap if p == 2 else cap ** (p - 1.0)


def _evaluate(items: Items, k: Array, total: Array, lam: Array, p: float, gamma: TwoFloat) -> Evaluation:
    exponent = dual_exponent(p)
    t, part, capped = _regimes(items, gamma, lam, p)
    inner = choose(part, t, 1.0)
    share = choose(part, items.cost * power(inner, exponent - 1), 0.0)
    # A NaN must reach a sum, so that it marks its row.
    partial = row_sum(choose(jnp.isnan(t), t, share * inner))
    full = row_sum(choose(capped, items.cost * items.cap, 0.0))
    excess = (full - k) + partial
    moving = exponent * row_sum(share * (items.cost / lam))
    surplus = choose(partial > 0, jnp.minimum(excess / partial, 1.0), 0.0)
    # Newton on partial ** (1 / exponent), nearly linear in gamma where partial itself is nearly a power.
    change = excess if exponent == 1 else -exponent * partial * jnp.expm1(jnp.log1p(-surplus) / exponent)
    change = choose(jnp.abs(excess) <= partial, change, excess)
    step = change / moving
    number = row_sum(part.astype(k.dtype))
    reach = exponent * row_sum(share) * jnp.maximum(1.0, 0.5 * jnp.sqrt(number))
    eps = jnp.finfo(k.dtype).eps
    small = jnp.abs(excess) <= eps * (4 * (1 + exponent) * partial + 2 * jnp.minimum(full + k, 2 * k))
    slack = 0.01 * total
    width = row_sum(choose(part, lam / items.cost, 0.0)) / jnp.maximum(number, 1.0)
    # The move of gamma that changes the amount of an entry, or the cost of that amount, by a good part.
    least = (lam / items.cost) * jnp.minimum(k / items.cost, 1.0)
    least = jnp.min(choose(items.worth > -jnp.inf, least, jnp.inf), axis=-1, keepdims=True)
    return Evaluation(
        excess=excess,
        level=jnp.log1p(excess / (k + slack)) - jnp.log1p(-excess / (total - k + slack)),
        step=choose(small, 0.0, step),
        trusted=jnp.isfinite(step) & (jnp.abs(excess) <= reach),
        converged=small,
        scale=choose(width > 0, jnp.minimum(width, least), least),
    )


@functools.partial(jax.custom_jvp, nondiff_argnums=(3,))
def price(items: Items, k: Array, lam: Array, p: float) -> TwoFloat:
    """Returns the root ``gamma`` of the equation, one per row; only ``lo`` carries its derivative.

    A budget ``k`` above the total cost buys everything.
    """
    limits = jnp.finfo(k.dtype)
    present = items.worth != -jnp.inf
    full_cost = choose(present, items.cost * items.cap, 0.0)
    total = row_sum(full_cost)
    k = jnp.minimum(k, total)
    width = lam * _capped_position(items.cap, p) / items.cost
    # At `low` everything is bought, at `high` nothing.
    low = jnp.min(choose(present, items.worth - width, jnp.inf), axis=-1, keepdims=True)
    high = jnp.max(items.worth, axis=-1, keepdims=True)
    low, high = (choose(jnp.abs(end) < jnp.inf, end, 0.0) for end in (low, high))
    margin = 4 * limits.eps * (jnp.abs(low) + jnp.abs(high))
    low = jnp.maximum(jnp.nextafter(low - margin, -jnp.inf), limits.min)
    high = jnp.minimum(jnp.nextafter(high + margin, jnp.inf), limits.max)
    slack = 0.01 * total
    ends = (
        End(low, jnp.log1p((total - k) / (k + slack)) - jnp.log1p(-(total - k) / (total - k + slack))),
        End(high, jnp.log1p(-k / (k + slack)) - jnp.log1p(k / (total - k + slack))),
    )
    # The start is the root for a uniform distribution of worth, weighted by cost.
    centre = row_sum(choose(present, full_cost * items.worth, 0.0)) / total
    spread = jnp.sqrt(row_sum(choose(present, full_cost * jnp.square(items.worth - centre), 0.0)) / total)
    start = centre + spread * (1.7 - 3.4 * k / total) - lam * row_sum(full_cost / items.cost) / total / p
    root = find_root(functools.partial(_evaluate, items, k, total, lam, p), start, *ends)
    # Buying all or nothing is exact, without errors of rounding or underflow.
    zero = jnp.zeros_like(k)
    valid = root.point.hi == root.point.hi  # false for NaN, which must mark its row
    # A row that offers nothing has no root.
    point = select((k == 0) & (valid | (total == 0)), TwoFloat(high, zero), root.point)
    return select((k == total) & (k > 0) & valid, TwoFloat(low, zero), point)


@price.defjvp
def _price_jvp(p, primals, tangents):
    """Applies the implicit function theorem to the equation."""
    items, k, lam = primals
    worth_dot, cost_dot, cap_dot = tangents[0]
    gamma = price(items, k, lam, p)
    exponent = dual_exponent(p)
    t, part, capped = _regimes(items, gamma, lam, p)
    inner = choose(part, t, 1.0)
    bought = choose(part, power(inner, exponent), choose(capped, items.cap, 0.0))
    # The derivative of an entry's amount in its position, times its cost; 0 unless it is bought in part.
    growth = choose(part, exponent * items.cost * power(inner, exponent - 1), 0.0)
    above = (items.worth - gamma.hi) - gamma.lo
    moved = items.cost * choose(part, worth_dot, 0.0) + choose(part, above, 0.0) * cost_dot
    spent = row_sum(growth * (moved - inner * tangents[2]) / lam)
    spent = spent + row_sum(choose(capped, items.cost * cap_dot, 0.0)) + row_sum(bought * cost_dot)
    resistance = row_sum(growth * (items.cost / lam))
    moves = resistance > 0
    lo_dot = choose(moves, (spent - tangents[1]) / choose(moves, resistance, 1.0), 0.0)
    return gamma, TwoFloat(jnp.zeros_like(gamma.hi), lo_dot)


def solve_knapsack(items: Items, k: Array, lam: Array, p: float) -> Array:
    """Returns ``z``, the amount of every entry: exactly 0, exactly its cap, or strictly between."""
    gamma = price(items, k, lam, p)
    _, part, capped = _regimes(items, gamma, lam, p)
    # Off the active set the position is a constant, so that no infinite entry reaches a derivative.
    active = items._replace(worth=choose(part, items.worth, gamma.hi + lam / items.cost))
    t = choose(part, _position(active, gamma, lam), 1.0)
    z = choose(part, power(t, dual_exponent(p)), choose(capped, items.cap, 0.0))
    # If costs or worths span more than the range of floats, the search may end away from the root. A result that
    # misses the budget is therefore refused.
    cost, cap, wanted, amount = lax.stop_gradient((items.cost, items.cap, k, z))
    wanted = jnp.minimum(wanted, row_sum(cost * cap))
    underflow = 4.0 * jnp.finfo(z.dtype).tiny * (1.0 + row_sum(cost))
    solved = jnp.abs(row_sum(cost * amount) - wanted) <= _BUDGET_TOLERANCE * wanted + underflow
    return z + choose(solved & ~jnp.isnan(gamma.hi), 0.0, jnp.nan, z.dtype)
