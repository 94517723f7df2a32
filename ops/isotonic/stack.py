"""Pool adjacent violators one pair after another, on a stack of blocks (App. B.2): for parabolas, on a CPU.

A block of parabolas is a parabola, so a merge takes a few operations. Since JAX 0.11.1 XLA compiles a loop of scalars
to one function (https://github.com/jax-ml/jax/issues/40101). Elsewhere each step would start several programs.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap

from ..arithmetic import TwoFloat, difference, shift
from ..interface import target, varying_as


def is_fast(shape: tuple[int, ...]) -> bool:
    """Returns whether a loop of scalars is fast where a program being traced is likely to run.

    A program that is exported for any number of rows does not know how many places the stack needs.
    """
    is_known = all(isinstance(size, int) for size in shape)
    return is_known and target()[0] == "cpu" and jax.__version_info__ >= (0, 11, 1)


@custom_vmap
def pool_parabolas(hi: Array, lo: Array, c: Array) -> tuple[Array, Array, Array]:
    """Returns the minimisers of ``sum_i c_i (v_i - m_i) ** 2`` over decreasing ``v``, and which neighbours are linked.

    Takes O(n) operations. ``m = hi + lo`` and ``c`` have shape ``(rows, n)``; the minimisers are two floats as well.
    """
    rows, n = hi.shape
    size = rows * (n + 1)
    # NaN ahead of every row is in order with all entries, and one more entry is read behind the last.
    apart = (jnp.pad(value, ((0, 0), (1, 0)), constant_values=jnp.nan) for value in (hi, lo, c))
    entries = tuple(jnp.pad(value.ravel(), (0, 1)) for value in apart)

    def rise(depth, top, stack):
        return difference(TwoFloat(*top[:2]), TwoFloat(*(_at(value, depth - 1) for value in stack[:2])))

    def push(carry):
        """Merges the top block with those under it that are out of order with it, then takes the next entry."""
        i, depth, top, stack, ends = carry

        def merge(carry):
            depth, top = carry
            below, lower, other = (_at(value, depth - 1) for value in stack)
            weight = other + top[2]
            return depth - 1, (*shift(TwoFloat(below, lower), rise(depth, top, stack) * (top[2] / weight)), weight)

        depth, top = lax.while_loop(lambda carry: rise(*carry, stack) > 0, merge, (depth, top))
        stack = tuple(_put(value, depth, part) for value, part in zip(stack, top, strict=True))
        return i + 1, depth + 1, tuple(_at(value, i) for value in entries), stack, _put(ends, depth, i)

    def spread(block, i):
        """Returns the minimiser of an entry, from the last to the first, and whether its successor is in its block."""
        block = block - (i < _at(ends, block - 1)).astype(block.dtype)
        return block, (_at(stack[0], block), _at(stack[1], block), i + 1 != _at(ends, block))

    empty, first = (tuple(map(part, entries)) for part in (jnp.zeros_like, lambda value: value[0]))
    start = (jnp.int32(1), jnp.int32(0), first, empty, jnp.zeros(size + 1, jnp.int32))
    start = varying_as(start, entries)
    _, depth, _, stack, ends = lax.while_loop(lambda carry: carry[0] <= size, push, start)
    results = lax.scan(spread, depth - 1, jnp.arange(size, dtype=jnp.int32), reverse=True)[1]
    return tuple(value.reshape(rows, n + 1)[:, 1:] for value in results)


def _at(values: Array, index: Array) -> Array:
    return lax.dynamic_index_in_dim(values, index, keepdims=False, allow_negative_indices=False)


def _put(values: Array, index: Array, value: Array) -> Array:
    return lax.dynamic_update_index_in_dim(values, value, index, 0, allow_negative_indices=False)


@pool_parabolas.def_vmap
def _rows_of_batch(size: int, batched: list[bool], *values: Array) -> tuple[tuple[Array, ...], tuple[bool, ...]]:
    """Adds the rows of a batch to those of the loop, which is fast for scalars alone."""
    expanded = [
        value if has else jnp.broadcast_to(value, (size, *value.shape))
        for value, has in zip(values, batched, strict=True)
    ]
    results = pool_parabolas(*(value.reshape(-1, value.shape[-1]) for value in expanded))
    return tuple(value.reshape(expanded[0].shape) for value in results), (True, True, True)
