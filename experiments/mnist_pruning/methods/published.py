"""The derivative of the top-k in magnitude (p = 2) in the authors' published code, which is not the exact one.

The code, `sparse_soft_topk` in google-research, has two solvers. PAV pools entries whose solutions agree to 1e-9: for
p = 2 its Jacobian is exact; for p = 4/3 it divides 0 by 0 at every weight that is not selected alone, and training ends
in NaN. Dykstra's algorithm, for p = 2 only, takes neighbours within `TOLERANCE` for one block. The many weights of a
layer lie closer than that, so nearly all of them become one block with a derivative of the order of 1 / lam. The exact
derivative is as large only at the threshold.
"""

import jax
import jax.numpy as jnp

import ops

TOLERANCE = 1e-4


def with_dykstras_jacobian(w: jax.Array, kept: jax.Array, k: jax.Array | int, lam: jax.Array) -> jax.Array:
    """Returns `kept` with the derivative that the published code has with Dykstra's algorithm.

    In a block of c entries, m of them among the k largest, an entry with gradient g_i gets `(g_i - sum of all g_j / (c
    + lam m)) / lam`, which is Proposition 7 for these blocks. The code's rescaling by 1 + lam is left out.

    Args:
      w: weights [n].
      kept: their relaxed top-k in magnitude for p = 2, not rescaled, [n].
      k: the number of kept weights.
      lam: the strength of the regularisation, a scalar.
    """
    order = jnp.argsort(-jnp.abs(w))
    magnitudes = jnp.abs(w)[order]
    solution = jax.lax.stop_gradient(magnitudes - lam * jnp.abs(kept)[order])  # of the isotonic problem, decreasing
    apart = solution[:-1] - solution[1:] > TOLERANCE
    block = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(apart, dtype=jnp.int32)])
    selected = (jnp.arange(w.size) < k).astype(w.dtype)

    def total(values: jax.Array) -> jax.Array:
        """Returns the sum over the block of each entry."""
        return jax.ops.segment_sum(values, block, num_segments=w.size, indices_are_sorted=True)[block]

    pulled = (magnitudes - total(magnitudes) / total(1.0 + lam * selected)) / lam
    return ops.straight_through(kept, jnp.sign(w) * jnp.zeros_like(w).at[order].set(pulled))
