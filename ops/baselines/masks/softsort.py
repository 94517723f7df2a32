"""Top-k by a relaxed permutation matrix: SoftSort (Prillo and Eisenschlos, 2020).

Row ``i`` of the matrix is ``softmax_j(-|s_i - x_j| / temperature)``, with ``s`` the entries in descending order: their
definition with the absolute difference as distance. The mask is the sum of the first ``k`` rows.

Neither rows nor matrix are formed here: the sums over ``j`` that normalise the rows, and the sums over ``i`` that make
the mask, are both sums of ``exp(-distance / temperature)``, taken in O(n log n) (``ops.baselines.masks.laplace_sums``).
"""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from ...interface.arguments import POSITIVE, UP_TO_N, Axis
from ...isotonic.sorting import descending
from ...scalar.choice import choose
from .laplace_sums import sum_above, sum_below
from .shared import finite, mask_rows


def _mask(x: Array, k: Array, temperature: Array) -> Array:
    s, restore = descending(x)
    present = (s > -jnp.inf).astype(x.dtype)
    s = finite(s)

    def sums(weights: Array) -> Array:
        """Returns the sums of ``w_i exp(-|s_i - s_j| / temperature)`` over all ``i``."""
        both = sum_above(weights, s, temperature) + sum_below(weights, s, temperature)
        return both - weights  # each of the two counts the entry itself

    rank = jnp.arange(x.shape[-1], dtype=x.dtype)[None, :]
    normaliser = choose(present > 0, sums(present), 1.0)
    return restore(present * sums(present * jnp.clip(k - rank, 0.0, 1.0) / normaliser))


def softsort_topk_mask(x: ArrayLike, k: ArrayLike, *, temperature: ArrayLike = 1.0, axis: Axis = -1) -> Array:
    """Returns a dense relaxed top-k mask: the sum of the first ``k`` rows of the SoftSort matrix.

    Prillo and Eisenschlos, "SoftSort: A Continuous Relaxation for the argsort Operator" (ICML 2020).
    Sums to ``k``, but not every entry is at most 1: rows of the matrix sum to 1, columns do not.
    ``temperature -> 0`` gives the hard mask (equal entries share), ``inf`` gives ``k / n`` everywhere.

    Differentiable in ``x``, ``k`` and ``temperature``, forwards and backwards, where no two entries are equal; where
    they are, the function has a kink and the derivative is one-sided. Takes O(n log n) time, where the paper's form
    takes O(k n), and O(n) memory, O(n log n) backwards; a new ``k`` or ``temperature`` compiles nothing.

    Args:
      x: real array, any shape. Entries equal to ``-inf`` get 0 and leave the others as if they were absent; where
        fewer than ``k`` are left, the sum is their number. ``+inf`` entries come first. A NaN makes its row NaN.
      k: how many rows are summed, in ``[0, n]``; where it is not whole, the last row counts in part. One number, or an
        array that broadcasts to one value per row.
      temperature: positive, in the units of ``x``; broadcasts like ``k``.
      axis: the axis along which entries compete; a tuple of several, or ``None`` for all.

    Returns:
      Array of the shape and dtype of ``x`` (integers are promoted to float), not negative. Computed in float32 at
      least.

    Raises:
      ValueError: an argument known at trace time is out of range; the message names it and its value.

    >>> (100 * softsort_topk_mask([1.0, 3.0, 2.0, 0.5], 2)).round()
    Array([27., 82., 74., 17.], dtype=float32)
    """
    return mask_rows(_mask, x, axis, {"k": (k, UP_TO_N), "temperature": (temperature, POSITIVE)})
