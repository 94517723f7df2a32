"""Masks from relaxed permutation matrices: the sum of the first ``k`` rows of SoftSort's or NeuralSort's matrix.

Row ``i`` of the matrix of SoftSort (Prillo and Eisenschlos, 2020) is ``softmax_j(-|s_i - x_j| / lam)``, with ``s``
the entries in descending order: their definition with the absolute difference as distance. The matrix is not
formed: the sums over ``j`` that normalise its rows, and the sums over ``i`` that make the mask, are both sums of
``exp(-distance / lam)``, taken in O(n log n) (``_sum_above``).

Row ``i`` of the matrix of NeuralSort (Grover, Wang, Zweig and Ermon, 2019) is

    softmax_j(((n + 1 - 2 i) x_j - A_j) / lam),    A_j = sum_l |x_j - x_l|,    i = 1, ..., n.

The vector ``A`` takes a sort and two cumulative sums. The rows are different functions of the entries, so ``k n``
exponentials are unavoidable; computing a few rows at a time needs O(n) memory.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from ...arithmetic import choose
from ...interface import UP_TO_N, WHOLE_UP_TO_N, Axis, check_axes, check_whole, floating, size_along
from ...isotonic.problem import descending
from .shared import FAR, finite, finite_above, mask_rows, unit_of

# How many entries of NeuralSort's matrix are in memory at a time.
_CHUNK_ENTRIES = 2**20


def softsort_topk_mask(x: ArrayLike, k: ArrayLike, *, lam: ArrayLike = 1.0, axis: Axis = -1) -> Array:
    """Returns a dense relaxed top-k mask: the sum of the first ``k`` rows of the SoftSort matrix.

    Source: Prillo and Eisenschlos, "SoftSort: A Continuous Relaxation for the argsort Operator" (ICML 2020). The mask
    sums to ``k``, but an entry may exceed 1, since rows of the matrix sum to 1 and columns do not.
    The paper calls ``lam`` tau. ``lam -> inf`` gives ``k / n`` everywhere.

    Differentiable in ``x``, ``k`` and ``lam``, forwards and backwards; at equal entries the function has a kink and the
    derivative is one-sided. Takes O(n log n) time (the paper's form takes O(k n)) and O(n) memory, O(n log n)
    backwards; a new ``k`` or ``lam`` compiles nothing.

    Arguments, result and errors are as for ``sigmoid_topk_mask``, except that ``k`` counts rows, in ``[0, n]``: the
    last row of a fractional ``k`` counts in part. If fewer than ``k`` entries are above ``-inf``, the mask sums to
    their number.

    See also:
      `sparse_topk.topk_mask`, which is sparse and at most 1; `neuralsort_topk_mask`; `sparse_topk.soft_sort`.

    >>> (100 * softsort_topk_mask([1.0, 3.0, 2.0, 0.5], 2)).round()
    Array([27., 82., 74., 17.], dtype=float32)
    """
    return mask_rows(_softsort, x, k, UP_TO_N, lam, axis)


def _softsort(x: Array, k: Array, lam: Array) -> Array:
    s, restore = descending(x)
    present = (s > -jnp.inf).astype(x.dtype)
    s = finite(s)

    def sums(weights: Array) -> Array:
        """Returns the sums of ``w_i exp(-|s_i - s_j| / lam)`` over all ``i``."""
        from_below = _sum_above(weights[:, ::-1], -s[:, ::-1], lam)[:, ::-1]
        return _sum_above(weights, s, lam) + from_below - weights  # each of the two counts the entry itself

    rank = jnp.arange(x.shape[-1], dtype=x.dtype)[None, :]
    normaliser = choose(present > 0, sums(present), 1.0)
    return restore(present * sums(present * jnp.clip(k - rank, 0.0, 1.0) / normaliser))


def _sum_above(weights: Array, s: Array, lam: Array) -> Array:
    """Returns ``sum_{i <= j} w_i exp(-(s_i - s_j) / lam)``, ``(rows, n)``, for finite descending rows ``s``.

    The sum over the 2h entries that end with ``j`` is that over the h entries that end with ``j``, plus that over the h
    entries that end with ``j - h`` times ``exp(-(s_{j-h} - s_j) / lam)``. So h doubles until it reaches n. All
    factors are between 0 and 1: nothing overflows, and rounding errors grow only with log n. Takes O(n log n) time and
    O(n) memory; O(n log n) memory in reverse mode.
    """
    n = s.shape[-1]
    # Padding before the first entry has weight 0, and a difference of the right sign.
    padded = jnp.concatenate([jnp.broadcast_to(s[:, :1], s.shape), s], axis=-1)

    # Reverse mode recomputes the factors; storing them would take several more arrays for each h.
    @jax.checkpoint
    def double(total: Array, h: Array) -> Array:
        def earlier(array: Array) -> Array:
            return lax.dynamic_slice_in_dim(array, n - h, n, axis=1)

        # The bound comes before the quotient, or derivatives would contain 0 * inf.
        away = jnp.minimum(earlier(padded) - s, FAR * lam) / lam
        return total + jnp.exp(-away) * earlier(jnp.pad(total, ((0, 0), (n, 0))))

    shifts = 2 ** jnp.arange((n - 1).bit_length(), dtype=jnp.int32)
    return lax.scan(lambda total, h: (double(total, h), None), weights, shifts)[0]


def neuralsort_topk_mask(x: ArrayLike, k: int, *, lam: ArrayLike = 1.0, axis: Axis = -1) -> Array:
    """Returns a dense relaxed top-k mask: the sum of the first ``k`` rows of the NeuralSort matrix.

    Source: Grover, Wang, Zweig and Ermon, "Stochastic Optimization of Sorting Networks via Continuous Relaxations"
    (ICLR 2019), which calls ``lam`` tau. ``k`` is a Python integer, and a new one compiles a program. Takes O(k n) time
    and, in chunks of rows, O(n) memory in both passes. The exponents are of the order of ``n |x| / lam``, and their
    rounding errors grow with them: at n = 10,000 in float32 a ``lam`` of a thousandth of the range of ``x`` is too
    small, though 0 is exact. Other arguments, derivatives (none in ``k``), limits, result and errors are as for
    ``softsort_topk_mask``.

    See also:
      `sparse_topk.topk_mask`, which is sparse; `softsort_topk_mask`; `sparse_topk.soft_sort`.

    >>> (100 * neuralsort_topk_mask([1.0, 3.0, 2.0, 0.5], 2)).round()
    Array([22., 92., 82.,  5.], dtype=float32)
    """
    x = floating(x)
    n = size_along(x.shape, check_axes(axis, x.ndim))
    k = check_whole("k", k, 0, n, f"in [0, {n}], the size along axis {axis}")
    return mask_rows(_neuralsort, x, k, WHOLE_UP_TO_N, lam, axis, num_rows=k)


def _neuralsort(x: Array, k: Array, lam: Array, *, num_rows: int) -> Array:
    if num_rows == 0:
        return jnp.zeros_like(x)
    s, restore = descending(finite_above(x))
    count, n = s.shape
    limits = jnp.finfo(s.dtype)
    present = s > -jnp.inf
    available = jnp.sum(present, axis=-1, keepdims=True, dtype=s.dtype)
    # The mask depends only on differences divided by lam. Entries are measured from the largest, in units of the range,
    # so that sums do not overflow.
    largest = lax.stop_gradient(choose(present[:, :1], s[:, :1], 0.0))
    below = 0.5 * choose(present, s, largest) - 0.5 * largest
    unit = unit_of(below)
    v, lam = below / unit, jnp.maximum(0.5 * lam / unit, limits.tiny**0.5)
    distances = _distances(v, available)

    def row_sum(ranks: Array) -> Array:
        """Returns the sum of the rows with the given ``ranks``, counted from 1."""
        i = ranks[None, :, None]
        logits = (available[:, :, None] + 1.0 - 2.0 * i) * v[:, None, :] - distances[:, None, :]
        logits = choose(present[:, None, :], logits, -jnp.inf)
        best = lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True, initial=limits.min))
        # The bound comes before the quotient, or derivatives would contain 0 * inf.
        scale = lam[:, :, None]
        near = choose(present[:, None, :], jnp.maximum(logits - best, -FAR * scale), 0.0)
        weights = choose(present[:, None, :], jnp.exp(near / scale), 0.0)
        total = jnp.maximum(jnp.sum(weights, axis=-1, keepdims=True), limits.tiny)
        wanted = i <= jnp.minimum(k, available)[:, :, None]
        return jnp.sum(choose(wanted, weights / total, 0.0), axis=1)

    size = min(max(1, _CHUNK_ENTRIES // (count * n)), num_rows)
    chunks = -(-num_rows // size)
    ranks = jnp.arange(1, chunks * size + 1, dtype=s.dtype).reshape(chunks, size)
    # Rows are recomputed in the backward pass, since storing them would take the memory of the whole matrix.
    chunk_sum = jax.checkpoint(row_sum, prevent_cse=False)
    return restore(lax.scan(lambda mask, ranks: (mask + chunk_sum(ranks), None), jnp.zeros_like(s), ranks)[0])


def _distances(v: Array, available: Array) -> Array:
    """Returns ``sum_l |v_j - v_l|`` over the first ``available`` entries of descending rows, the finite ones."""
    above = jnp.arange(1, v.shape[-1], dtype=v.dtype)[None, :]  # entries above each gap
    gaps = v[:, :-1] - v[:, 1:]
    down = jnp.cumsum(above * gaps, axis=-1)
    up = lax.cumsum(jnp.maximum(available - above, 0.0) * gaps, axis=1, reverse=True)
    return jnp.pad(down, ((0, 0), (1, 0))) + jnp.pad(up, ((0, 0), (0, 1)))
