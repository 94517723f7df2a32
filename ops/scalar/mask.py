"""The relaxed top-k mask, and the selection that all operators are built on, in the layout of the solvers."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from ..interface.arguments import ZeroLam
from .choice import choose
from .equation import Equation, selection
from .hard import anywhere, tied_selection
from .rows import Rows
from .slope_in_k import with_slope_in_k
from .threshold import Given, pooled_value
from .twofloat import TwoFloat


class Selected(NamedTuple):
    """A selection.

    Attributes:
      keys: the values by which the entries compete.
      gamma: the threshold of every row.
      z: how much of an entry is selected, in [0, 1]. Only entries selected in part have a derivative in ``k``.
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

    For a fractional ``k`` and ``lam = 0`` the last one selected gets the remainder. ``-inf`` entries are never
    selected. A NaN makes its row NaN.

    Args:
      entries: laid out as ``equation.rows`` says.
      k: how much is selected, one value per row.
      lam: strength of the relaxation, one value per row.
      equation: exponent, nonlinearity, layout, and which ``lam`` are 0.
      where: boolean, the entries that take part. Default: all, except ``-inf`` for an increasing ``phi``.
      given: the arrays that ``entries`` were computed from, if these are not the operator's own arguments.
    """
    given = None if where is not None or equation.zero == "all" else given or Given(entries)
    keys = tuple(equation.keys(x, lam) for x in entries)
    if where is not None:
        keys = tuple(choose(present, s, -jnp.inf) for present, s in zip(where, keys, strict=True))
    seen, amount = (keys, k) if equation.zero != "all" else lax.stop_gradient((keys, k))
    gamma = pooled_value(seen, amount, lam, equation, given)
    z = tuple(selection(s, gamma, lam, equation) for s in seen)
    if equation.zero != "none":
        tied = tied_selection(seen, gamma, amount, lam, equation.rows)
        z = tuple(part + rest for part, rest in zip(z, tied, strict=True))
    return Selected(keys, gamma, z)


def hard_selection(entries: tuple[Array, ...], k: Array, rows: Rows = Rows()) -> tuple[Array, ...]:
    """Returns the selection at ``lam = 0``: 1 for the ``k`` largest entries, 0 for the others.

    Ties and fractional ``k`` as in ``select_topk``; without a derivative.
    """
    return select_topk(entries, k, jnp.zeros_like(k), Equation(2.0, rows=rows, zero="all")).z


def with_hard_rows(
    hard: Callable[[tuple[Array, ...], Array], tuple[Array, ...]],
    soft: Callable[[Array], tuple[Array, ...]],
    entries: tuple[Array, ...],
    k: Array,
    lam: Array,
    zero: ZeroLam,
) -> tuple[Array, ...]:
    """Returns ``soft(lam)``, or ``hard(entries, k)`` in rows with ``lam = 0``, for solvers that need ``lam > 0``."""
    if zero == "all":
        return hard(entries, k)
    if zero == "none":
        return soft(lam)
    vanishing = lam == 0
    relaxed = soft(choose(vanishing, 1.0, lam))  # any positive number, so that no derivative contains 1 / 0
    exact = lax.cond(anywhere(vanishing), hard, lambda entries, k: tuple(map(jnp.zeros_like, entries)), entries, k)
    return tuple(choose(vanishing, h, y) for h, y in zip(exact, relaxed, strict=True))


def gain_of_mask(s: Array, first: Array, lam: Array, equation: Equation) -> Array:
    """Returns the derivative of the mask in ``z``, which is 1 (see ``ops.scalar.slope_in_k``)."""
    return jnp.ones_like(s)


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
    entries: tuple[Array, ...],
    k: Array,
    lam: Array,
    equation: Equation,
    *,
    zero: ZeroLam,
    where: tuple[Array, ...] | None = None,
) -> tuple[Array, ...]:
    """Returns the mask of entries laid out as ``equation.rows`` says; ``zero`` tells which ``lam`` are 0.

    With ``phi = abs`` entries are selected by magnitude, and the mask has their signs.
    """
    equation = dataclasses.replace(equation, zero=zero)
    return mask_from(select_topk(entries, k, lam, equation, where), entries, k, lam, equation)
