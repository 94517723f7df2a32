"""Relaxed top-k as weights and indices in a static number of slots, with gathers into slots and scatters from them."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import PartitionSpec
from jax.typing import ArrayLike

from . import interface
from .arithmetic import choose
from .interface import FEATURES, ROWS, amount, exportable, on_mesh, rowwise, spec_of
from .scalar.equation import Equation
from .scalar.mask import mask_of


@exportable
class SoftTopk(NamedTuple):
    """The largest entries of a relaxed top-k mask, one in each slot.

    Attributes:
      weights: the mask of the entry in each slot, largest entries first; 0 in slots beyond the support. Shape and dtype
        are those of the scores, with ``num_slots`` along the axis.
      indices: int32, the index of the entry in each slot; slots of weight 0 hold the next largest entries.
      overflow: the sum of the mask over entries without a slot, one value per row; exactly 0 if the support fits.

    See also:
      `soft_topk`, which returns it.
    """

    weights: Array
    indices: Array
    overflow: Array


def soft_topk(
    x: ArrayLike,
    k: ArrayLike | None = None,
    *,
    num_slots: int,
    density: ArrayLike | None = None,
    lam: ArrayLike = 0.1,
    p: float = 2.0,
    axis: int = -1,
    where: ArrayLike | None = None,
) -> SoftTopk:
    """Returns ``topk_mask`` as weights and indices, like ``jax.lax.top_k``, with gradients through the weights.

    The mask may be non-zero at more than ``k`` entries; the ``num_slots`` largest get a slot. ``gather_slots`` and
    ``scatter_slots`` move tokens to buffers of static size and back, or beams to the next step, in memory proportional
    to the slots. Takes O(n log num_slots) time, most of it in ``jax.lax.top_k``.

    ``num_slots`` is a Python integer in ``[1, n]``, ``n`` the size of ``x`` along ``axis``, a single one. If fewer
    entries take part, others fill the slots with weight 0; at ``lam = 0`` the first ``k`` slots have weight 1. Other
    arguments and errors are as in ``topk_mask``.

    See also:
      `topk_mask` for the mask alone; `gather_slots` and `scatter_slots` for what is in the slots; `lam_of_support` for
      a ``lam`` at which the support fits.

    >>> weights, indices, overflow = soft_topk([1.0, 3.0, 2.5, 2.0], 2, num_slots=2, lam=1.0)
    >>> weights, indices, float(overflow)
    (Array([1.  , 0.75], dtype=float32), Array([1, 2], dtype=int32), 0.25)
    """
    x = interface.floating(x)
    n = x.shape[interface.check_axis(axis, x.ndim)]
    return rowwise(
        _in_slots,
        x,
        axis=axis,
        per_row={"k": (amount(k, density), interface.UP_TO_N), "lam": (lam, interface.STRENGTH)},
        where=where,
        returns=SoftTopk(FEATURES, FEATURES, ROWS),
        equation=Equation(interface.check_p(p), zero=interface.rows_with_zero_lam(lam)),
        num_slots=interface.check_whole("num_slots", num_slots, 1, n, f"in [1, {n}], the size along axis {axis}"),
    )


def _in_slots(
    x: Array, k: Array, lam: Array, where: Array | None = None, *, equation: Equation, num_slots: int
) -> SoftTopk:
    entries = x if where is None else choose(where, x, -jnp.inf)
    (mask,) = mask_of((entries,), k, lam, equation)
    # Entries are in the order of their masks, and also order those that are fully selected. `lax.top_k` ranks -0 below
    # 0; in the mask they tie, so both become 0.
    _, indices = lax.top_k(lax.stop_gradient(choose(entries == 0, 0.0, entries)), num_slots)
    weights = jnp.take_along_axis(mask, indices, axis=1, mode="promise_in_bounds")
    # The overflow is a sum, not a difference, so that it is exactly 0 if all entries found a slot.
    row = lax.broadcasted_iota(indices.dtype, indices.shape, 0)
    without_slot = mask.at[row, indices].set(0.0, mode="promise_in_bounds")
    return SoftTopk(weights, indices.astype(jnp.int32), jnp.sum(without_slot, axis=1, keepdims=True))


def gather_slots(values: ArrayLike, indices: ArrayLike) -> Array:
    """Returns ``values`` at ``indices``, one copy per slot; differentiable in the values.

    Args:
      values: real array ``(*batch, n, width)``.
      indices: integers in ``[0, n)``, like those of ``soft_topk``, of shape ``(*batch, ...)``: slots of any shape for
        every ``(n, width)``. The range is not checked.

    Returns:
      Array of the shape of ``indices`` with ``width`` at the end, and the dtype of ``values``.

    Raises:
      ValueError: an argument has another shape or dtype.

    See also:
      `soft_topk` for the indices; `scatter_slots` for the way back.

    >>> gather_slots(jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([1, 1]))
    Array([[3., 4.],
           [3., 4.]], dtype=float32)
    """
    values, indices = interface.real(values, "values"), _whole(indices)
    if values.ndim < 2:
        raise ValueError(f"values must have shape (*batch, n, width), got {values.shape}")
    batch = values.shape[:-2]
    if indices.shape[: len(batch)] != batch:
        raise ValueError(f"indices must begin with the batch of values, {batch}, got shape {indices.shape}")
    return _gathered(values, indices)


@jax.jit
def _gathered(values: Array, indices: Array) -> Array:
    def apply(values: Array, indices: Array) -> Array:
        taken = values.at[indices.reshape(-1)].get(mode="promise_in_bounds")
        return taken.reshape(*indices.shape, values.shape[1])

    specs = PartitionSpec(*spec_of(indices), None)
    return on_mesh(_in_batches(apply, values.ndim - 2), specs)(values, indices)


def scatter_slots(outputs: ArrayLike, indices: ArrayLike, weights: ArrayLike, n: int, *, batch_dims: int = 0) -> Array:
    """Returns the sums of ``outputs`` times ``weights`` at ``indices``; differentiable in both.

    Args:
      outputs: real array of the shape of ``indices`` with a ``width`` at the end.
      indices: as in ``gather_slots``.
      weights: one per slot, in the shape of ``indices``: those of ``soft_topk``, possibly times a gate.
      n: the number of entries, a Python integer; entries without a slot get 0.
      batch_dims: the number of batch axes, a Python integer: 1 for slots of scores ``(batch, n)``. With the default 0,
        all slots are added to one array ``(n, width)``.

    Returns:
      Array ``(*batch, n, width)`` of the dtype of ``outputs`` (integers are promoted to float). Computed in float32 at
      least, and rounded once.

    Raises:
      ValueError: an argument has another shape or dtype.

    See also:
      `soft_topk` for indices and weights; `gather_slots` for the way there.

    >>> scatter_slots(jnp.array([[1.0, 1.0], [2.0, 4.0]]), jnp.array([2, 0]), jnp.array([1.0, 0.5]), 3)
    Array([[1., 2.],
           [0., 0.],
           [1., 1.]], dtype=float32)
    """
    outputs, weights = interface.floating(outputs, "outputs"), interface.real(weights, "weights")
    indices = _whole(indices)
    if outputs.shape[:-1] != indices.shape or not outputs.ndim:
        raise ValueError(f"outputs must have the shape of indices, {indices.shape}, and a width, got {outputs.shape}")
    if weights.shape != indices.shape:
        raise ValueError(f"weights must have the shape of indices, {indices.shape}, got {weights.shape}")
    n = interface.check_whole("n", n, 1, np.inf, "at least 1")
    most = indices.ndim
    batch_dims = interface.check_whole("batch_dims", batch_dims, 0, most, f"in [0, {most}], the dimensions of indices")
    return _scattered(outputs, indices, weights, n=n, batch_dims=batch_dims)


@functools.partial(jax.jit, static_argnames=("n", "batch_dims"))
def _scattered(outputs: Array, indices: Array, weights: Array, *, n: int, batch_dims: int) -> Array:
    dtype, width = interface.working_dtype(outputs.dtype), outputs.shape[-1]

    def apply(outputs: Array, indices: Array, weights: Array) -> Array:
        weighed = (outputs.astype(dtype) * weights.astype(dtype)[..., None]).reshape(-1, width)
        sums = jnp.zeros((n, width), dtype).at[indices.reshape(-1)].add(weighed, mode="promise_in_bounds")
        return sums.astype(outputs.dtype)

    specs = PartitionSpec(*spec_of(indices)[:batch_dims], None, None)
    return on_mesh(_in_batches(apply, batch_dims), specs)(outputs, indices, weights)


def _in_batches(function: Callable[..., Array], dimensions: int) -> Callable[..., Array]:
    """Returns ``function`` mapped over the first ``dimensions`` axes of its arguments."""
    return functools.reduce(lambda inner, _: jax.vmap(inner), range(dimensions), function)


def _whole(indices: ArrayLike) -> Array:
    indices = interface.real(indices, "indices")
    if not jnp.issubdtype(indices.dtype, jnp.integer):
        raise ValueError(f"indices must be integers, got {interface.shown(indices)}")
    return indices
