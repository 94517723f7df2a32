"""Pool adjacent violators one pair after another, on a stack of blocks (App. B.2): for parabolas, on a CPU.

A block of parabolas is a parabola, so a merge takes a few operations. Since JAX 0.11.1 XLA compiles a loop of scalars
to one function (https://github.com/jax-ml/jax/issues/40101). Elsewhere each step would start several programs.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap

from ..interface import varying_as
from ..scalar.arithmetic import TwoFloat, choose, difference, shift
from ..scalar.rows import target


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
    size = rows * n
    entries = tuple(jnp.pad(value.ravel(), (0, 1)) for value in (hi, lo, c))

    def step(carry):
        """Merges the top block with the one under it if they are out of order, else pushes the next entry."""
        i, depth, floor, next_row, top, stack, ends = carry
        under = tuple(value[jnp.maximum(depth - 1, 0)] for value in stack)
        # What is read is read before the stack is written to, which would copy it otherwise.
        under, entry, top = lax.optimization_barrier((under, tuple(value[i] for value in entries), top))
        above, below, weight = TwoFloat(*top[:2]), TwoFloat(*under[:2]), under[2] + top[2]
        rise = difference(above, below)
        merges = (depth > floor) & (rise > 0)
        merged = (*shift(below, rise * (top[2] / weight)), weight)
        stack = tuple(
            value.at[depth].set(part, mode="promise_in_bounds") for value, part in zip(stack, top, strict=True)
        )
        ends = ends.at[depth].set(i, mode="promise_in_bounds")
        begins = ~merges & (i == next_row)
        return (
            choose(merges, i, i + 1),
            choose(merges, depth - 1, depth + 1),
            choose(begins, depth + 1, floor),  # blocks of earlier rows
            choose(begins, next_row + n, next_row),
            tuple(choose(merges, one, other) for one, other in zip(merged, entry, strict=True)),
            stack,
            ends,
        )

    empty = tuple(jnp.zeros_like(value) for value in entries)
    ends = jnp.zeros(size + 1, jnp.int32)
    first = tuple(value[0] for value in entries)
    start = (jnp.int32(1), jnp.int32(0), jnp.int32(0), jnp.int32(n), first, empty, ends)
    _, depth, *_, stack, ends = lax.while_loop(lambda carry: carry[0] <= size, step, varying_as(start, entries))
    # Unused places of the stack write to one that is cut off.
    last = choose(jnp.arange(size + 1, dtype=jnp.int32) < depth, ends - 1, size)
    is_last = jnp.zeros(size + 1, bool).at[last].set(True, mode="promise_in_bounds")[:size]
    block = jnp.cumsum(is_last, dtype=jnp.int32) - is_last.astype(jnp.int32)
    return stack[0][block].reshape(rows, n), stack[1][block].reshape(rows, n), ~is_last.reshape(rows, n)


@pool_parabolas.def_vmap
def _rows_of_batch(size: int, batched: list[bool], *values: Array) -> tuple[tuple[Array, ...], tuple[bool, ...]]:
    """Adds the rows of a batch to those of the loop, which is fast for scalars alone."""
    whole = [
        value if has else jnp.broadcast_to(value, (size, *value.shape))
        for value, has in zip(values, batched, strict=True)
    ]
    found = pool_parabolas(*(value.reshape(-1, value.shape[-1]) for value in whole))
    return tuple(value.reshape(whole[0].shape) for value in found), (True, True, True)
