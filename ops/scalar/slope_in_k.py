"""The derivative in ``k`` of rows in which no entry is selected in part.

There the operators have two one-sided derivatives in ``k``: a larger ``k`` begins to select the next entry, and a
smaller one takes from the last one selected. They are given the derivative from the left, and at ``k = 0``, which is
the smallest ``k``, that from the right.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero

from .choice import choose
from .equation import Equation, broadcast_where, dense
from .hard import indices

Gain = Callable[[Array, Array, Array, Equation], Array]


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

    Args:
      y: the values of an operator.
      signs: the signs that the operator gives to its values.
      keys: the values by which entries compete.
      z: how much of each entry is selected. In rows with a ``z`` strictly between 0 and 1, ``y`` has its derivative.
      k: how much is selected in total.
      lam: strength of the relaxation.
      equation: the scalar equation.
      gain: returns the derivative of ``|y|`` in ``z``, from the key and ``lam``, for an entry that is selected in full,
        or not at all if the second argument is true.
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
    slopes = (
        choose(m, sign * gain(choose(m, s, 1.0), first, lam, equation), 0.0) * broadcast_where(m, per_entry)
        for m, s, sign in zip(marginal, keys, signs, strict=True)
    )
    return y, tuple(dot + slope for dot, slope in zip(y_dot, slopes, strict=True))
