"""RTop-K, what row-wise selection on GPUs is held against: its algorithm, in a kernel of our own making.

Xi Xie, Yuebo Luo, Hongwu Peng and Caiwen Ding, *RTop-K: Ultra-Fast Row-Wise Top-K Selection for Neural Network
Acceleration on GPUs*, ICLR 2025, Algorithm 1 with precision 0: a threshold per row by bisection of values, without a
sort. The authors' kernel is CUDA source to be built by hand, and in no package index: it cannot be a peer itself.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as pltriton

LONGEST = 8192
"""Rows up to this length: a row is one program's, in its registers, as in the paper a row is one warp's."""


def mask(x: Array, k: int) -> Array:
    """1 for the ``k`` largest entries of every row, the first of those that tie, and 0 for the others.

    Args:
      x: rows of finite entries, float32, shape ``(rows, n)``, ``n`` at most ``LONGEST``.
      k: how many are selected, between 1 and ``n``.
    """
    rows, n = x.shape
    size = pl.next_power_of_2(n)

    def kernel(x_ref: Any, z_ref: Any) -> None:
        index = lax.iota(jnp.int32, size)
        v = pltriton.load(x_ref.at[pl.ds(0, size)], mask=index < n, other=-jnp.inf)

        def count(selected: Array) -> Array:
            return jnp.sum(selected.astype(jnp.int32))

        def middle(low: Array, high: Array) -> Array:
            return low + 0.5 * (high - low)

        def narrow(bracket: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = bracket
            found = count(v >= middle(low, high))
            return jnp.where(found >= k, middle(low, high), low), jnp.where(found <= k, middle(low, high), high)

        def is_wide(bracket: tuple[Array, Array]) -> Array:
            return (middle(*bracket) > bracket[0]) & (middle(*bracket) < bracket[1])

        high = jnp.max(v)
        low = jnp.where(count(v >= high) >= k, high, jnp.min(jnp.where(index < n, v, jnp.inf)))
        threshold, _ = lax.while_loop(is_wide, narrow, (low, high))
        above, tied = (v > threshold).astype(jnp.int32), (v == threshold).astype(jnp.int32)
        first = tied * (jnp.cumsum(tied) <= k - jnp.sum(above)).astype(jnp.int32)
        pltriton.store(z_ref.at[pl.ds(0, size)], (above + first).astype(x.dtype), mask=index < n)

    row = pl.BlockSpec((None, size), lambda i: (i, 0))
    return pl.pallas_call(
        kernel,
        grid=(rows,),
        in_specs=[row],
        out_specs=row,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=pltriton.CompilerParams(num_warps=max(1, min(16, size // 512)), num_stages=1),
        interpret=jax.default_backend() != "gpu",
        name="rtopk",
    )(x)
