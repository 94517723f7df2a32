"""Groups of entries that are kept or pruned together, and runs that each keep some of their entries.

A group ``g`` with ``m_g`` entries competes by one number, its size: for magnitudes the root mean square ``s_g =
||x_g|| / sqrt(m_g)``, for scores the mean. ``lam`` therefore means the same as for single entries, and the number of
entries gives a group no advantage. The magnitude operator replaces the sizes ``s`` by ``u = topk_mag(s, k)`` and scales
each group accordingly, ``y_g = x_g * u_g / s_g``. That is the solution of

    max_y  sum_g <x_g, y_g> / m_g - k_support_norm(r)^2 / 2 - lam / p * sum_g r_g^p,    r_g = ||y_g|| / sqrt(m_g),

since for given ``r`` the first term is largest if each ``y_g`` has the direction of ``x_g``. The rest is the problem of
``topk_mag`` in the sizes: Proposition 2 of Sander et al. (2023) with the k-support norm of groups, not of entries. The
mask has the value ``z = topk_mask(s, k)`` on each group. It maximises ``sum_g <x_g, y_g> / m_g - lam / p * sum_g
r_g^p`` over the ``y`` that are constant on groups, ``0 <= z <= 1, sum_g z_g = k``.

Derivatives are finite also at and near groups of zeros. For a group of zeros they are those of a kept group if ``k``
exceeds the number of other groups, else 0. Second derivatives require sizes that are 0 or whose square does not
underflow (1e-19 in float32).
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .interface import check_whole, shown
from .scalar.arithmetic import choose


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Tiles of the last axes of an array, each kept or pruned as a whole; tiles at the edges may be smaller.

    Attributes:
      shape: shape of a tile. An array must have at least as many axes; leading axes are not tiled.

    Raises:
      ValueError: the shape is not a tuple of positive whole numbers.
    """

    shape: tuple[int, ...] = (4, 4)

    def __post_init__(self) -> None:
        if not isinstance(self.shape, tuple) or not self.shape:
            raise ValueError(f"shape must be a tuple of positive whole numbers, got {shown(self.shape)}")
        for size in self.shape:
            check_whole("shape", size, 1, math.inf, "a tuple of positive whole numbers")

    def misfit(self, shape: tuple[int, ...]) -> str:
        """Returns why an array of this shape cannot be grouped; empty if it can."""
        return "" if len(shape) >= len(self.shape) else f"must have at least {len(self.shape)} axes"

    def count(self, shape: tuple[int, ...]) -> int:
        """Returns how many groups of an array of this shape compete with each other."""
        lead = len(shape) - len(self.shape)
        tiles = (-(-size // tile) for size, tile in zip(shape[lead:], self.shape, strict=True))
        return math.prod(shape[:lead]) * math.prod(tiles)

    def split(self, x: Array) -> Array:
        """Returns ``x`` with separate axes for the entries of a group; tiles at the edges are padded with 0."""
        lead, tiled = x.shape[: x.ndim - len(self.shape)], x.shape[x.ndim - len(self.shape) :]
        padding = [(0, -size % tile) for size, tile in zip(tiled, self.shape, strict=True)]
        if any(after for _, after in padding):
            x = jnp.pad(x, [(0, 0)] * len(lead) + padding)
        split = [part for size, tile in zip(tiled, self.shape, strict=True) for part in (-(-size // tile), tile)]
        return x.reshape(*lead, *split)

    def with_layer_axis(self) -> "Blocks":
        """Returns the same groups for an array with one more axis in front, which indexes layers."""
        return self

    def group_axes(self, ndim: int) -> tuple[int, ...]:
        """Returns the axes of ``split(x)`` along which a group extends, for an ``x`` of ``ndim`` axes."""
        return tuple(ndim - len(self.shape) + 2 * i + 1 for i in range(len(self.shape)))

    def join(self, groups: Array, shape: tuple[int, ...]) -> Array:
        """Returns the array of this shape whose ``split`` is ``groups``."""
        lead = shape[: len(shape) - len(self.shape)]
        tiles = groups.shape[len(lead) :]
        filled = groups.reshape(*lead, *(tiles[2 * i] * tiles[2 * i + 1] for i in range(len(self.shape))))
        return filled[tuple(slice(size) for size in shape)]


@dataclasses.dataclass(frozen=True)
class Channels:
    """Slices of an array at one index of an axis, each kept or pruned as a whole.

    For a kernel ``[inputs, outputs]``, as in flax, the groups of ``Channels(-1)`` are the columns, all weights into one
    output, and those of ``Channels(-2)`` the rows, all weights out of one input.

    Attributes:
      axis: the axis that indexes groups, or several axes: ``Channels((-2, -1))`` are the filters of a convolution.

    Raises:
      ValueError: the axis is not a whole number or a tuple of different ones.
    """

    axis: int | tuple[int, ...] = -1

    def __post_init__(self) -> None:
        for axis in self._axes:
            check_whole("axis", axis)
        if not self._axes or len(set(self._axes)) < len(self._axes):
            raise ValueError(f"axis must be a whole number or a tuple of different ones, got {shown(self.axis)}")

    @property
    def _axes(self) -> tuple[int, ...]:
        return self.axis if isinstance(self.axis, tuple) else (self.axis,)

    def misfit(self, shape: tuple[int, ...]) -> str:
        """See ``Blocks``."""
        if any(not -len(shape) <= axis < len(shape) for axis in self._axes):
            return f"must have axis {self.axis}"
        if len({axis % len(shape) for axis in self._axes}) < len(self._axes):
            return f"must have as many different axes as there are in {self.axis}"
        return ""

    def count(self, shape: tuple[int, ...]) -> int:
        """See ``Blocks``."""
        return math.prod(shape[axis] for axis in self._axes)

    def split(self, x: Array) -> Array:
        """See ``Blocks``."""
        return x

    def with_layer_axis(self) -> "Channels":
        """See ``Blocks``."""
        return Channels((0, *(axis + 1 if axis >= 0 else axis for axis in self._axes)))

    def group_axes(self, ndim: int) -> tuple[int, ...]:
        """See ``Blocks``."""
        return tuple(sorted(set(range(ndim)) - {axis % ndim for axis in self._axes}))

    def join(self, groups: Array, shape: tuple[int, ...]) -> Array:
        """See ``Blocks``."""
        return groups


@dataclasses.dataclass(frozen=True)
class NM:
    """N:M sparsity: of every ``m`` consecutive entries along an axis, ``k`` (the N) are kept.

    Entries compete only within such a run, so ``k`` and ``density`` are those of one run: ``NM(4)`` with ``k=2`` is
    2:4, which GPUs compute faster.

    Attributes:
      m: the number of entries of a run. It must divide the size of the axis.
      axis: the axis of the runs; -2 is the input axis of a kernel ``[..., inputs, outputs]``.

    Raises:
      ValueError: ``m`` or ``axis`` is not a whole number, or ``m`` is below 1.
    """

    m: int = 4
    axis: int = -2

    def __post_init__(self) -> None:
        check_whole("m", self.m, 1, math.inf, "a positive whole number")
        check_whole("axis", self.axis)

    def misfit(self, shape: tuple[int, ...]) -> str:
        """See ``Blocks``."""
        if not -len(shape) <= self.axis < len(shape):
            return f"must have axis {self.axis}"
        if shape[self.axis] % self.m:
            return f"must have a multiple of {self.m} entries along axis {self.axis}"
        return ""

    def count(self, shape: tuple[int, ...]) -> int:
        """See ``Blocks``."""
        return self.m

    def with_layer_axis(self) -> "NM":
        """See ``Blocks``."""
        return NM(self.m, self.axis + 1) if self.axis >= 0 else self

    def runs(self, x: Array) -> Array:
        """Returns the runs as rows, shape ``(runs, m)``."""
        return jnp.moveaxis(x, self.axis, -1).reshape(-1, self.m)

    def join(self, runs: Array, shape: tuple[int, ...]) -> Array:
        """Returns the array of this shape that has these ``runs``."""
        axis = self.axis % len(shape)
        moved = (*shape[:axis], *shape[axis + 1 :], shape[axis])
        return jnp.moveaxis(runs.reshape(moved), -1, axis)


Groups = Blocks | Channels | NM
Whole = Blocks | Channels


def check_groups(groups: Groups | None) -> None:
    """Checks the type of ``groups``."""
    if not isinstance(groups, Groups | None):
        raise ValueError(f"groups must be None, Blocks, Channels or NM, got {shown(groups)}")


def sizes(groups: Whole, x: Array, *, signed: bool) -> Array:
    """Returns one number per group: the mean of its entries if ``signed``, else their root mean square.

    Args:
      groups: the groups of entries.
      x: floating array.
      signed: whether the sign of entries counts.

    Returns:
      Array in which each axis along which groups extend (``groups.group_axes``) has size 1.
    """
    split, axes = groups.split(x), groups.group_axes(x.ndim)
    count = _counts(groups, x.shape, axes).astype(x.dtype)
    if signed:
        return jnp.sum(split, axis=axes, keepdims=True) / count
    return _root_mean_square(split, count, axes)


def _counts(groups: Whole, shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    """Returns the number of entries of each group, with axes of size 1 where groups have equally many."""
    if isinstance(groups, Channels):
        return np.full((1,) * len(shape), math.prod(shape[axis] for axis in axes))
    lead, counts = len(shape) - len(groups.shape), np.ones((1,) * (len(shape) + len(groups.shape)))
    for i, tile in enumerate(groups.shape):
        size = shape[lead + i]
        filled = np.minimum(tile, size - tile * np.arange(-(-size // tile)))
        counts = counts * filled.reshape([-1 if axis == lead + 2 * i else 1 for axis in range(counts.ndim)])
    return counts


@jax.custom_jvp
def _ratio(a: Array, b: Array) -> Array:
    """Returns ``a / b``, and 0 where ``b`` is 0; its derivative avoids the square of ``b``, which may underflow."""
    some = b != 0
    return choose(some, a / choose(some, b, 1.0), 0.0)


@_ratio.defjvp
def _ratio_jvp(primals, tangents):
    ratio = _ratio(*primals)
    return ratio, _ratio(tangents[0] - ratio * tangents[1], primals[1])


def _root_mean_square(x: Array, count: np.ndarray, axes: tuple[int, ...]) -> Array:
    """Returns the root mean square over ``axes``, with derivative 0 at 0."""

    @jax.custom_jvp
    def of(x: Array) -> Array:
        largest = jnp.max(jnp.abs(x), axis=axes, keepdims=True)
        scale = choose((largest > 0) & (largest < jnp.inf), largest, 1.0)
        return scale * jnp.sqrt(jnp.sum(jnp.square(x / scale), axis=axes, keepdims=True) / count)

    @of.defjvp
    def _jvp(primals, tangents):
        size = of(*primals)
        along = _ratio(primals[0], jnp.broadcast_to(size, primals[0].shape))
        return size, jnp.sum(along * tangents[0], axis=axes, keepdims=True) / count

    return of(x)


def rescaled(groups: Whole, x: Array, size: Array, wanted: Array, at_zero: Array) -> Array:
    """Returns ``x`` with each group scaled from ``size`` to ``wanted``, or by ``at_zero`` if its size is 0."""
    factor = choose(size == 0, at_zero, _ratio(wanted, size))
    return scaled(groups, x, factor)


def scaled(groups: Whole, x: Array, factor: Array) -> Array:
    """Returns ``x`` with each group multiplied by one number."""
    return groups.join(groups.split(x) * factor, x.shape)


def spread(groups: Whole, values: Array, like: Array) -> Array:
    """Returns an array shaped like ``like`` with one value per group."""
    split = jax.eval_shape(groups.split, like)
    return groups.join(jnp.broadcast_to(values, split.shape), like.shape)
