"""Groups of entries that are kept or pruned together, and runs that each keep some of their entries.

A group ``g`` with ``m_g`` entries competes by one number, its size: for magnitudes the root mean square ``s_g =
||x_g|| / sqrt(m_g)``, for scores the mean. ``lam`` therefore means the same as for single entries, and a group gains
nothing by having more entries. The magnitude operator replaces the sizes ``s`` by ``u = topk_mag(s, k)`` and scales
each group accordingly, ``y_g = x_g * u_g / s_g``. This solves

    max_y  sum_g <x_g, y_g> / m_g - k_support_norm(r)^2 / 2 - lam / p * sum_g r_g^p,    r_g = ||y_g|| / sqrt(m_g),

since for given ``r`` the first term is largest if each ``y_g`` has the direction of ``x_g``, which leaves the problem
of ``topk_mag`` in the sizes: Proposition 2 of Sander et al. (2023) with the k-support norm of groups, not of entries.
The mask has the value ``z = topk_mask(s, k)`` on each group. It maximises ``sum_g <x_g, y_g> / m_g - lam / p * sum_g
r_g^p`` over the ``y`` that are constant on groups, ``0 <= z <= 1, sum_g z_g = k``.

Derivatives are finite also at and near groups of zeros. A group of zeros has those of a kept group if ``k`` exceeds the
number of other groups, and otherwise 0. Second derivatives require sizes that are 0 or whose square does not underflow
(1e-19 in float32).
"""

import dataclasses
import math
from typing import Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .arithmetic import choose, ratio
from .interface import check_whole, shown

Axes = int | tuple[int, ...] | Literal["inputs", "outputs"]


class Whole:
    """Groups that are kept or pruned as a whole: the tiles of an array, of which those at the edges may be smaller."""

    def tile(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of a tile, with as many axes as the ``shape`` of the array."""
        raise NotImplementedError

    def count(self, shape: tuple[int, ...]) -> int:
        """Returns how many groups of an array of this shape compete with each other."""
        return math.prod(-(-size // tile) for size, tile in zip(shape, self.tile(shape), strict=True))

    def split(self, x: Array) -> Array:
        """Returns ``x``, padded with 0, with two axes for each of its own: over tiles, and within a tile."""
        tiles = self.tile(x.shape)
        padding = [(0, -size % tile) for size, tile in zip(x.shape, tiles, strict=True)]
        x = jnp.pad(x, padding) if any(after for _, after in padding) else x
        return x.reshape([part for size, tile in zip(x.shape, tiles, strict=True) for part in (size // tile, tile)])

    def join(self, groups: Array, shape: tuple[int, ...]) -> Array:
        """Returns the array of this shape whose ``split`` is ``groups``."""
        filled = groups.reshape(
            [number * tile for number, tile in zip(groups.shape[::2], groups.shape[1::2], strict=True)]
        )
        return filled[tuple(slice(size) for size in shape)]


@dataclasses.dataclass(frozen=True)
class Blocks(Whole):
    """Tiles of the last axes of an array, each kept or pruned as a whole; tiles at the edges may be smaller.

    Attributes:
      shape: shape of a tile. An array must have at least as many axes; leading axes are not tiled.

    Raises:
      ValueError: the shape is not a tuple of positive whole numbers.

    See also:
      `topk_mag_tree`, `topk_mask_tree` and `pruning.Pruner`, which take it as ``groups``; `Channels` for whole neurons;
      `NM` for n of every m.
    """

    shape: tuple[int, ...] = (4, 4)

    def __post_init__(self) -> None:
        if not isinstance(self.shape, tuple) or not self.shape:
            raise ValueError(f"shape must be a tuple of positive whole numbers, got {shown(self.shape)}")
        for size in self.shape:
            check_whole("shape", size, 1, math.inf, "a tuple of positive whole numbers")

    def on(self, layout: str) -> "Blocks":
        """Returns the groups of an array with the axes of this ``layout_of``."""
        return self

    def misfit(self, shape: tuple[int, ...]) -> str:
        """Returns why an array of this shape cannot be grouped, or an empty string."""
        return "" if len(shape) >= len(self.shape) else f"must have at least {len(self.shape)} axes"

    def tile(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """See ``Whole``."""
        return (*(1,) * (len(shape) - len(self.shape)), *self.shape)

    def with_layer_axis(self) -> "Blocks":
        """Returns the groups of an array that has one more axis in front, which indexes layers."""
        return self


class _Along:
    """Groups along an axis, or several: given as numbers, or as the inputs or outputs that the names of leaves tell."""

    axis: Axes

    def __post_init__(self) -> None:
        if self.axis in ("inputs", "outputs"):
            return
        if isinstance(self.axis, str):
            raise ValueError(f"axis must be a whole number, several, 'inputs' or 'outputs', got {shown(self.axis)}")
        for axis in self.axes:
            check_whole("axis", axis)
        if not self.axes or len(set(self.axes)) < len(self.axes):
            raise ValueError(f"axis must be a whole number or a tuple of different ones, got {shown(self.axis)}")

    @property
    def axes(self) -> tuple[int, ...]:
        """The numbers of the axes; there are none while they are names."""
        axis = () if isinstance(self.axis, str) else self.axis
        return axis if isinstance(axis, tuple) else (axis,)

    def on(self, layout: str) -> Self:
        """Returns the groups with numbers in place of names, where ``layout_of`` has a letter for each axis."""
        if not isinstance(self.axis, str):
            return self
        axes = tuple(i for i, letter in enumerate(layout) if letter == self.axis[0])
        if not axes:
            return self
        return dataclasses.replace(self, axis=axes[0] if len(axes) == 1 else axes)  # type: ignore[type-var]

    def misfit(self, shape: tuple[int, ...]) -> str:
        """See ``Blocks``."""
        if isinstance(self.axis, str):
            return f"must have axes that are known to be {self.axis}"
        if any(not -len(shape) <= axis < len(shape) for axis in self.axes):
            return f"must have axis {self.axis}"
        if len({axis % len(shape) for axis in self.axes}) < len(self.axes):
            return f"must have as many different axes as there are in {self.axis}"
        return ""


@dataclasses.dataclass(frozen=True)
class Channels(_Along, Whole):
    """Slices of an array at one index of an axis, each kept or pruned as a whole.

    By default they are whole neurons, all weights into one output. ``Channels("inputs")`` are all weights out of one
    input. Which axes of a leaf are inputs and which outputs is known by its name, as `Pruner` says.

    Attributes:
      axis: ``"outputs"`` or ``"inputs"``; or the number of the axis that indexes groups: of attention's query
        ``[D, H, D/H]`` ``Channels(1)`` are whole heads, and ``Channels(-1)`` an entry of all heads; or several numbers:
        ``Channels((-2, -1))`` are the filters of a convolution.

    Raises:
      ValueError: the axis is none of these.

    See also:
      `topk_mag_tree`, `topk_mask_tree` and `pruning.Pruner`, which take it as ``groups``; `Blocks` for tiles; `NM` for
      n of every m.
    """

    axis: Axes = "outputs"

    def tile(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """See ``Whole``."""
        chosen = {axis % len(shape) for axis in self.axes}
        return tuple(1 if axis in chosen else size for axis, size in enumerate(shape))

    def with_layer_axis(self) -> "Channels":
        """See ``Blocks``."""
        return Channels((0, *(axis + 1 if axis >= 0 else axis for axis in self.axes)))


@dataclasses.dataclass(frozen=True)
class NM(_Along):
    """N:M sparsity: ``k`` (the N) of every ``m`` consecutive entries along an axis are kept.

    Entries compete only within a run of ``m``, so ``k`` and ``density`` are those of one run: ``NM(4)`` with ``k=2`` is
    2:4, which GPUs compute faster if the runs are along the inputs, as they are by default.

    Attributes:
      m: the number of entries of a run. It must divide the size of the axis.
      axis: ``"inputs"`` or ``"outputs"``, as of ``Channels``; or the number of the axis of the runs; or several
        numbers, whose axes count as one, like the inputs ``[H, D/H]`` of attention's last matrix.

    Raises:
      ValueError: ``m`` is not a whole number or below 1, or the axis is none of these.

    See also:
      `topk_mag_tree`, `topk_mask_tree` and `pruning.Pruner`, which take it as ``groups``; `Blocks` for tiles;
      `Channels` for whole neurons.
    """

    m: int = 4
    axis: Axes = "inputs"

    def __post_init__(self) -> None:
        check_whole("m", self.m, 1, math.inf, "a positive whole number")
        super().__post_init__()

    def misfit(self, shape: tuple[int, ...]) -> str:
        """See ``Blocks``."""
        misfit = super().misfit(shape)
        if not misfit and math.prod(shape[axis] for axis in self.axes) % self.m:
            return f"must have a multiple of {self.m} entries along axis {self.axis}"
        return misfit

    def count(self, shape: tuple[int, ...]) -> int:
        """See ``Whole``."""
        return self.m

    def with_layer_axis(self) -> "NM":
        """See ``Blocks``."""
        return NM(self.m, tuple(axis + 1 if axis >= 0 else axis for axis in self.axes))

    def runs(self, x: Array) -> Array:
        """Returns the runs as rows, shape ``(runs, m)``."""
        return jnp.moveaxis(x, self.axes, range(-len(self.axes), 0)).reshape(-1, self.m)

    def join(self, runs: Array, shape: tuple[int, ...]) -> Array:
        """Returns the array of this shape that has these ``runs``."""
        last = range(-len(self.axes), 0)
        moved = jax.eval_shape(lambda x: jnp.moveaxis(x, self.axes, last), jax.ShapeDtypeStruct(shape, runs.dtype))
        return jnp.moveaxis(runs.reshape(moved.shape), last, self.axes)


Groups = Blocks | Channels | NM


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
      Array like ``groups.split(x)``, in which each axis within a tile has size 1.
    """
    split, axes = groups.split(x), tuple(range(1, 2 * x.ndim, 2))
    count = _counts(groups.tile(x.shape), x.shape).astype(x.dtype)
    if signed:
        return jnp.sum(split, axis=axes, keepdims=True) / count
    return _root_mean_square(split, count, axes)


def _counts(tiles: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    """Returns the number of entries of each group; an axis has size 1 if it makes no difference."""
    counts = np.ones((1,) * (2 * len(shape)))
    for axis, (size, tile) in enumerate(zip(shape, tiles, strict=True)):
        filled = np.minimum(tile, size - tile * np.arange(-(-size // tile))) if size % tile else np.array([tile])
        counts = counts * filled.reshape([-1 if dim == 2 * axis else 1 for dim in range(counts.ndim)])
    return counts


def _ratio_or_zero(a: Array, b: Array) -> Array:
    """Returns ``a / b``, and 0 where ``b`` is 0."""
    positive = b != 0
    return choose(positive, ratio(a, choose(positive, b, 1.0)), 0.0)


def _root_mean_square(x: Array, count: np.ndarray, axes: tuple[int, ...]) -> Array:
    """Returns the root mean square over ``axes``, with derivative 0 at 0."""

    @jax.custom_jvp
    def root_mean_square(x: Array) -> Array:
        largest = jnp.max(jnp.abs(x), axis=axes, keepdims=True)
        scale = choose((largest > 0) & (largest < jnp.inf), largest, 1.0)
        return scale * jnp.sqrt(jnp.sum(jnp.square(x / scale), axis=axes, keepdims=True) / count)

    @root_mean_square.defjvp
    def _jvp(primals, tangents):
        size = root_mean_square(*primals)
        along = _ratio_or_zero(primals[0], jnp.broadcast_to(size, primals[0].shape))
        return size, jnp.sum(along * tangents[0], axis=axes, keepdims=True) / count

    return root_mean_square(x)


def rescaled(groups: Whole, x: Array, size: Array, wanted: Array, at_zero: Array) -> Array:
    """Returns ``x`` with each group scaled from ``size`` to ``wanted``, or by ``at_zero`` if its size is 0."""
    return scaled(groups, x, choose(size == 0, at_zero, _ratio_or_zero(wanted, size)))


def scaled(groups: Whole, x: Array, factor: Array) -> Array:
    """Returns ``x`` with each group multiplied by one number; an infinite entry times 0 is 0."""
    split = groups.split(x)
    return groups.join(choose(jnp.isinf(split) & (factor == 0), 0.0, split) * factor, x.shape)


def spread(groups: Whole, values: Array, like: Array) -> Array:
    """Returns an array shaped like ``like`` with one value per group."""
    split = jax.eval_shape(groups.split, like)
    return groups.join(jnp.broadcast_to(values, split.shape), like.shape)
