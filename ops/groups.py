"""Groups of the entries of an array that are kept or pruned together, and runs that keep some of their own.

Of a group ``g`` with ``m_g`` entries, what competes is its size, one number: the root mean square ``s_g = ||x_g|| /
sqrt(m_g)`` of magnitudes, the mean of scores. So ``lam`` means what it means for single entries, and groups of
different numbers of entries compete as equals. The magnitude operator of groups scales each by what becomes of its
size, ``y_g = x_g * u_g / s_g`` with ``u = topk_mag(s, k)``. That is the solution of

    max_y  sum_g <x_g, y_g> / m_g - k_support_norm(r)^2 / 2 - lam / p * sum_g r_g^p,    r_g = ||y_g|| / sqrt(m_g),

since for given ``r`` the first term is largest where each ``y_g`` points where ``x_g`` does, and what remains
is the problem of ``topk_mag`` in the sizes: Proposition 2 of Sander et al. (2023) with the k-support norm of groups in
the place of that of entries. The mask of groups is ``z = topk_mask(s, k)`` throughout each, the maximiser of ``sum_g
<x_g, y_g> / m_g - lam / p * sum_g r_g^p`` over the ``y`` that are constant on groups, ``0 <= z <= 1, sum_g z_g = k``.

Derivatives are finite also at groups of zeros and near them: they are those of a group that is kept where ``k`` is more
than there are others, and 0 where it is not. Second ones are for sizes that are 0 or whose square does not underflow
(1e-19 in float32).
"""

import dataclasses
import math
import operator

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .interface.arguments import shown
from .scalar.choice import choose


def _check_whole(name: str, value: object, allowed: str, low: float) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < low:
        raise ValueError(f"{name} must be {allowed}, got {shown(value)}")
    return number


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Tiles of the last axes of an array, kept or pruned whole; those at the edges may be smaller.

    Attributes:
      shape: of a tile. An array must have as many axes at least; a tile lies at one index of the axes before.

    Raises:
      ValueError: the shape is not a tuple of positive whole numbers.
    """

    shape: tuple[int, ...] = (4, 4)

    def __post_init__(self) -> None:
        if not isinstance(self.shape, tuple) or not self.shape:
            raise ValueError(f"shape must be a tuple of positive whole numbers, got {shown(self.shape)}")
        for size in self.shape:
            _check_whole("shape", size, "a tuple of positive whole numbers", 1)

    def misfit(self, shape: tuple[int, ...]) -> str:
        """Why an array of this shape has no such groups; empty if it has."""
        return "" if len(shape) >= len(self.shape) else f"must have at least {len(self.shape)} axes"

    def count(self, shape: tuple[int, ...]) -> int:
        """How many of an array of this shape compete with each other."""
        lead = len(shape) - len(self.shape)
        tiles = (-(-size // tile) for size, tile in zip(shape[lead:], self.shape, strict=True))
        return math.prod(shape[:lead]) * math.prod(tiles)

    def split(self, x: Array) -> Array:
        """``x`` with axes of its own for the entries of a group, in which the edges are filled up with 0."""
        lead, tiled = x.shape[: x.ndim - len(self.shape)], x.shape[x.ndim - len(self.shape) :]
        padding = [(0, -size % tile) for size, tile in zip(tiled, self.shape, strict=True)]
        if any(after for _, after in padding):
            x = jnp.pad(x, [(0, 0)] * len(lead) + padding)
        split = [part for size, tile in zip(tiled, self.shape, strict=True) for part in (-(-size // tile), tile)]
        return x.reshape(*lead, *split)

    def with_layer_axis(self) -> "Blocks":
        """The same groups of an array with one more axis in front, at each index of which they lie."""
        return self

    def group_axes(self, ndim: int) -> tuple[int, ...]:
        """The axes of ``split`` of an array of ``ndim`` axes along which a group extends."""
        return tuple(ndim - len(self.shape) + 2 * i + 1 for i in range(len(self.shape)))

    def join(self, groups: Array, shape: tuple[int, ...]) -> Array:
        """What ``split`` was made of."""
        lead = shape[: len(shape) - len(self.shape)]
        tiles = groups.shape[len(lead) :]
        filled = groups.reshape(*lead, *(tiles[2 * i] * tiles[2 * i + 1] for i in range(len(self.shape))))
        return filled[tuple(slice(size) for size in shape)]


@dataclasses.dataclass(frozen=True)
class Channels:
    """Slices of an array at one index of an axis, kept or pruned whole.

    Of a kernel ``[inputs, outputs]`` (that of flax) ``Channels(-1)`` are the columns, all weights into one output;
    ``Channels(-2)`` the rows, all weights out of one input.

    Attributes:
      axis: whose indices tell groups apart, or several axes: ``Channels((-2, -1))`` are the filters of a convolution.

    Raises:
      ValueError: the axis is not a whole number or a tuple of different ones.
    """

    axis: int | tuple[int, ...] = -1

    def __post_init__(self) -> None:
        allowed = "a whole number or a tuple of different ones"
        for axis in self._axes:
            _check_whole("axis", axis, allowed, -math.inf)
        if not self._axes or len(set(self._axes)) < len(self._axes):
            raise ValueError(f"axis must be {allowed}, got {shown(self.axis)}")

    @property
    def _axes(self) -> tuple[int, ...]:
        return self.axis if isinstance(self.axis, tuple) else (self.axis,)

    def misfit(self, shape: tuple[int, ...]) -> str:
        """As that of ``Blocks``."""
        if any(not -len(shape) <= axis < len(shape) for axis in self._axes):
            return f"must have axis {self.axis}"
        if len({axis % len(shape) for axis in self._axes}) < len(self._axes):
            return f"must have as many different axes as there are in {self.axis}"
        return ""

    def count(self, shape: tuple[int, ...]) -> int:
        """As that of ``Blocks``."""
        return math.prod(shape[axis] for axis in self._axes)

    def split(self, x: Array) -> Array:
        """As that of ``Blocks``."""
        return x

    def with_layer_axis(self) -> "Channels":
        """As that of ``Blocks``."""
        return Channels((0, *(axis + 1 if axis >= 0 else axis for axis in self._axes)))

    def group_axes(self, ndim: int) -> tuple[int, ...]:
        """As that of ``Blocks``."""
        return tuple(sorted(set(range(ndim)) - {axis % ndim for axis in self._axes}))

    def join(self, groups: Array, shape: tuple[int, ...]) -> Array:
        """As that of ``Blocks``."""
        return groups


@dataclasses.dataclass(frozen=True)
class NM:
    """N:M sparsity: of every ``m`` entries that follow each other along an axis, ``k`` (the N) are kept.

    Entries compete within these runs alone, so ``k`` and ``density`` are those of one run: ``NM(4)`` with ``k=2`` is
    2:4, which GPUs compute faster.

    Attributes:
      m: how many entries a run has. It must divide the size of the axis.
      axis: along which runs lie; -2 are the inputs of a kernel ``[..., inputs, outputs]``.

    Raises:
      ValueError: they are not whole numbers, or ``m`` is below 1.
    """

    m: int = 4
    axis: int = -2

    def __post_init__(self) -> None:
        _check_whole("m", self.m, "a positive whole number", 1)
        _check_whole("axis", self.axis, "a whole number", -math.inf)

    def misfit(self, shape: tuple[int, ...]) -> str:
        """As that of ``Blocks``."""
        if not -len(shape) <= self.axis < len(shape):
            return f"must have axis {self.axis}"
        if shape[self.axis] % self.m:
            return f"must have a multiple of {self.m} entries along axis {self.axis}"
        return ""

    def count(self, shape: tuple[int, ...]) -> int:
        """As that of ``Blocks``."""
        return self.m

    def with_layer_axis(self) -> "NM":
        """As that of ``Blocks``."""
        return NM(self.m, self.axis + 1) if self.axis >= 0 else self

    def runs(self, x: Array) -> Array:
        """The runs as rows, shape ``(runs, m)``."""
        return jnp.moveaxis(x, self.axis, -1).reshape(-1, self.m)

    def join(self, runs: Array, shape: tuple[int, ...]) -> Array:
        """The array of this shape whose ``runs`` these are."""
        axis = self.axis % len(shape)
        moved = (*shape[:axis], *shape[axis + 1 :], shape[axis])
        return jnp.moveaxis(runs.reshape(moved), -1, axis)


Groups = Blocks | Channels | NM
Whole = Blocks | Channels


def check_groups(groups: Groups | None) -> None:
    """Checks what is kept or pruned together."""
    if not isinstance(groups, Groups | None):
        raise ValueError(f"groups must be None, Blocks, Channels or NM, got {shown(groups)}")


def sizes(groups: Whole, x: Array, *, signed: bool) -> Array:
    """One number for each group: the mean of its entries if ``signed``, else their root mean square.

    Args:
      groups: of the entries.
      x: floating array.
      signed: whether the sign of entries counts.

    Returns:
      Array with an axis of size 1 in place of each along which groups extend (``groups.group_axes``).
    """
    split, axes = groups.split(x), groups.group_axes(x.ndim)
    count = _counts(groups, x.shape, axes).astype(x.dtype)
    if signed:
        return jnp.sum(split, axis=axes, keepdims=True) / count
    return _root_mean_square(split, count, axes)


def _counts(groups: Whole, shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    """How many entries each group has, with axes of size 1 where all have as many."""
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
    """``a / b``, and 0 where ``b`` is; without the square of ``b`` in its derivative, which may underflow."""
    some = b != 0
    return choose(some, a / choose(some, b, 1.0), 0.0)


@_ratio.defjvp
def _ratio_jvp(primals, tangents):
    ratio = _ratio(*primals)
    return ratio, _ratio(tangents[0] - ratio * tangents[1], primals[1])


def _root_mean_square(x: Array, count: np.ndarray, axes: tuple[int, ...]) -> Array:
    """Over the axes ``axes``. Its derivative at 0 is 0."""

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
    """``x`` with each group scaled from its ``size`` to the ``wanted`` one, by ``at_zero`` where its size is 0."""
    factor = choose(size == 0, at_zero, _ratio(wanted, size))
    return scaled(groups, x, factor)


def scaled(groups: Whole, x: Array, factor: Array) -> Array:
    """``x`` with each group multiplied by one number."""
    return groups.join(groups.split(x) * factor, x.shape)


def spread(groups: Whole, values: Array, like: Array) -> Array:
    """The array shaped as ``like`` with one value throughout each group."""
    split = jax.eval_shape(groups.split, like)
    return groups.join(jnp.broadcast_to(values, split.shape), like.shape)
