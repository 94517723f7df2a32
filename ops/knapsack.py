"""The relaxed top-k mask with a cost and a cap for each entry: a relaxed fractional knapsack."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from . import interface
from .arithmetic import choose
from .budget import Items, solve_knapsack
from .interface import Axis, broadcast, check_where, floating, known, rowwise

# Costs are rescaled if the largest of a row is outside this range.
_UNSCALED_COSTS = (2.0**-20, 2.0**20)


def knapsack_mask(
    x: ArrayLike,
    k: ArrayLike | None = None,
    *,
    density: ArrayLike | None = None,
    costs: ArrayLike = 1.0,
    caps: ArrayLike = 1.0,
    lam: ArrayLike = 0.1,
    p: float = 2.0,
    axis: Axis = -1,
    where: ArrayLike | None = None,
) -> Array:
    """Returns how much of each entry a relaxed fractional knapsack takes within a budget ``k``.

    The result solves ``max_z <x, z> - lam / p * ||z||_p^p`` over ``0 <= z <= caps, <costs, z> = k``. With costs and
    caps of 1 it is ``topk_mask``, Proposition 2 of Sander et al. (2023) with ``phi(x) = x`` and ``w = 1_k``; both are
    one scalar equation, solved exactly. ``lam -> 0`` gives the fractional knapsack, which takes entries in the order of
    ``x / costs``, each in full until the budget is spent. To prune by bytes or operations, let ``costs`` count them.

    Differentiable in ``x``, ``k``, ``density``, ``costs``, ``caps`` and ``lam``, forwards and backwards, to any order;
    if no entry of a row is taken in part, its derivative in ``k`` is 0. Takes O(n) time and memory. The result has the
    shape and dtype of ``x``.

    Args:
      x: real array, any shape. Entries equal to ``-inf`` get 0 and leave the others as if they were absent; ``+inf``
        entries come first. A NaN makes its row NaN.
      k: the budget, >= 0 and in the units of ``costs``; one number, or an array that broadcasts to one value per row
        (the shape of ``x`` without ``axis``). A budget above the total cost takes everything.
      density: instead of ``k``, the budget as a share of the total cost of entries that take part, in [0, 1]; not
        rounded. Shape as ``k``.
      costs: the cost of a unit of each entry, positive and finite; broadcasts against ``x``. Other costs are refused if
        known, and make their row NaN if traced. The costs of a row may span any range, as long as ``x`` and ``lam``
        divided by a cost (in units of the largest) neither over- nor underflow. A row that misses its budget by more
        than 0.1 % is NaN.
      caps: the most to take of each entry, >= 0; broadcasts and is checked like ``costs``. ``inf`` means no cap, and is
        allowed with ``k`` only.
      lam: strength of the relaxation, in [1e-32, 1e32], in the units of ``x``; shape as ``k``.
      p, axis, where: as in ``topk_mask``.

    Raises:
      ValueError: an argument known at trace time is out of range.

    See also:
      `topk_mask` if all costs and caps are 1; `topk_plan` for limits on columns.

    >>> knapsack_mask([3.0, 2.0, 1.0], 3.0, costs=[4.0, 1.0, 1.0], lam=0.1)
    Array([0.25, 1.  , 1.  ], dtype=float32)
    """
    interface.check_one_of(k, density)
    budget: Any = {"k": (k, interface.NON_NEGATIVE)} if density is None else {"density": (density, interface.SHARE)}
    x, costs, caps = floating(x), floating(costs, "costs"), floating(caps, "caps")
    most = "" if density is None else " and finite, as the budget is a density"
    _check_known("costs", costs, lambda c: ~((c > 0) & (c < np.inf)), "positive and finite", x, where)
    _check_known("caps", caps, lambda u: ~(u >= 0) | ((u == np.inf) & bool(most)), f">= 0{most}", x, where)
    unscaled = known(costs) and costs.ndim == 0 and _UNSCALED_COSTS[0] <= float(np.asarray(costs)) <= _UNSCALED_COSTS[1]
    return rowwise(
        _knapsack,
        x,
        axis=axis,
        aligned={"costs": costs, "caps": caps},
        per_row=budget | {"lam": (lam, interface.POSITIVE_STRENGTH)},
        where=where,
        p=interface.check_p(p),
        unscaled=unscaled,
    )


def _check_known(
    name: str, value: Array, wrong: Callable[[np.ndarray], np.ndarray], allowed: str, x: Array, where: ArrayLike | None
) -> None:
    """Raises a ValueError if ``value`` is known and ``wrong`` at an entry that takes part."""
    if not known(value) or not np.any(invalid := wrong(np.asarray(value))) or not (where is None or known(where)):
        return
    invalid = np.array(broadcast(invalid, x.shape, name, "x"))
    if where is not None:
        invalid &= np.asarray(broadcast(check_where(where), x.shape, "where", "x"))
    if known(x):
        invalid &= np.asarray(x) != -np.inf
    if np.any(invalid):
        raise ValueError(f"{name} must be {allowed}, got {np.broadcast_to(np.asarray(value), x.shape)[invalid][0]}")


def _knapsack(
    x: Array,
    *,
    costs: Array,
    caps: Array,
    lam: Array,
    where: Array | None = None,
    p: float,
    unscaled: bool,
    **amount: Array,
) -> Array:
    """Returns the amounts of rows ``(rows, n)``; ``amount`` is their budget, named ``k`` or ``density``."""
    present = x != -jnp.inf
    if where is not None:
        present = present & where
    ((name, budget),) = amount.items()
    valid = (costs > 0) & (costs < jnp.inf) & (caps >= 0)
    if name == "density":
        valid = valid & (caps < jnp.inf)
    usable = present & valid
    # A count, because XLA evaluates `any` of constant costs while it compiles: for a minute at (4096, 8192).
    invalid = jnp.sum(usable, axis=-1, keepdims=True) < jnp.sum(present, axis=-1, keepdims=True)
    limits = jnp.finfo(x.dtype)
    largest = limits.max
    unit = jnp.ones_like(lam)
    if not unscaled:
        # Costs are divided by a power of two near the largest: squares of worths could over- or underflow otherwise.
        most = jnp.max(choose(usable, jnp.minimum(costs, largest / 2), 0.0), axis=-1, keepdims=True)
        outside = (most > 0) & ((most < _UNSCALED_COSTS[0]) | (most > _UNSCALED_COSTS[1]))
        unit = lax.stop_gradient(lax.reduce_precision(choose(outside, most, 1.0), limits.nexp, 0))
    cost, cap = choose(usable, costs / unit, 1.0), choose(usable, caps, 0.0)
    worth = choose(usable, jnp.minimum(x, largest) / cost, -jnp.inf)
    worth = choose(worth == jnp.inf, largest, worth)
    if name == "density":
        budget = budget * jnp.sum(choose(usable, cost * cap, 0.0), axis=-1, keepdims=True)
    else:
        budget = budget / unit
        # An infinite cap becomes finite, and so large that the budget does not reach it.
        beyond = jnp.minimum(lax.stop_gradient(2.0 * budget / cost), largest)
        cap = choose(cap == jnp.inf, beyond, cap)
    empty = ~jnp.any(usable & (cap > 0), axis=-1, keepdims=True)
    z = solve_knapsack(Items(worth, cost, cap), choose(invalid, jnp.nan, budget), lam, p)
    return choose(present & ~(empty & ~invalid), z, 0.0)
