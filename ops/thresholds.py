"""The threshold of a relaxed top-k mask as an object, which can be applied to other entries than its own."""

import ast
from typing import NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from . import interface
from .arithmetic import TwoFloat, choose, select
from .interface import Axis, Range, ZeroLam, amount, rowwise
from .prefixes import prefix_thresholds
from .scalar.equation import Equation, selection
from .scalar.mask import select_topk, tied_selection
from .scalar.threshold import highest

_ANY = Range("a real number")


class TopkThreshold(NamedTuple):
    """The threshold ``tau`` of a relaxed top-k mask: a function of entries, and a pytree with one value per row.

    Entries up to ``tau`` have the mask 0, those from ``tau + lam`` on the mask 1, and those between
    ``((x - tau) / lam) ** (1 / (p - 1))``. Where nothing is selected in part, ``tau`` is the highest that selects the
    same: the least entry selected minus ``lam``, up to rounding, whatever lies far below. If nothing is selected, it is
    the largest entry, and without entries 0.

    Attributes:
      rounded: ``tau`` rounded to a float: float64 for entries of float64, else float32. A constant to differentiation.
      rest: the rounding error of ``rounded``, which carries the derivative of ``tau``.
      lam: the width of the step from 0 to 1, in the units of the entries.
      k: how much the threshold selects of the entries that it was found for.
      p: exponent of the regularisation.
      axis: the axis along which entries compete, or several, counted from the end.

    See also:
      `topk_threshold` and `prefix_topk_threshold`, which return it.
    """

    rounded: Array
    rest: Array
    lam: Array
    k: Array
    p: float = 2.0
    axis: Axis = -1

    def __repr__(self) -> str:
        tau = self.tau if isinstance(self.rounded, Array | np.ndarray) else self.rounded
        return f"TopkThreshold(tau={tau}, lam={self.lam}, k={self.k}, p={self.p}, axis={self.axis})"

    @property
    def tau(self) -> Array:
        """The threshold, one value per row, with its derivatives."""
        return self.rounded + self.rest

    def __call__(self, x: ArrayLike, *, where: ArrayLike | None = None) -> Array:
        """Returns the mask of entries by this threshold, in the shape and dtype of ``x``.

        For the entries that the threshold was found for, this is ``topk_mask``: to the bit, if ``lam`` was known to
        both or traced by both. Other entries get the mask that they would have had among those, and do not affect each
        other. At ``lam = 0`` entries equal to the threshold are selected in their order, until ``k`` of the row are.
        Differentiable in ``x`` and through the threshold; if that selects none of its own entries in part, its
        derivative in ``k`` is 0.

        Args:
          x: real array of any size along the axis of the threshold; its other axes are those of the threshold, possibly
            with more in front, like that of ``jax.vmap``. ``-inf`` gets 0, and only a NaN gets NaN.
          where: boolean array, broadcasting against ``x``: entries that take part. The others get 0, and no gradient.

        Raises:
          ValueError: ``x`` has another number of rows.
        """
        x = interface.floating(x)
        entries = x.astype(jnp.float64) if self.rounded.dtype == jnp.float64 else x
        per_row = {name: (getattr(self, name), _ANY) for name in ("k", "lam", "rounded", "rest")}
        zero: ZeroLam = "none" if interface.known(self.lam) and np.all(np.asarray(self.lam) != 0) else "some"
        y = rowwise(_selected, entries, axis=self.axis, per_row=per_row, where=where, p=self.p, zero=zero)
        return y.astype(x.dtype)

    def entry(self, x: ArrayLike) -> Array:
        """Returns the mask of one entry per row, for entries that come in a stream.

        ``x`` has one value per row, the shape of ``tau``, or broadcasts against that.

        >>> topk_threshold([1.0, 3.0, 2.5, 2.0], 2, lam=1.0).entry(2.25)
        Array(0.5, dtype=float32)
        """
        x = jnp.broadcast_to(x, jnp.broadcast_shapes(jnp.shape(x), self.rounded.shape))
        return self._replace(axis=-1)(x[..., None])[..., 0]

    def ema(self, new: "TopkThreshold", decay: ArrayLike) -> "TopkThreshold":
        """Returns ``decay * self + (1 - decay) * new``, a running mean over steps, without a derivative.

        Args:
          new: the threshold of this step, of the same ``p`` and ``axis``. Additional leading axes are averaged over
            first.
          decay: in [0, 1]; 0 forgets all but ``new``.

        Raises:
          ValueError: ``new`` has another ``p``, ``axis`` or number of rows, or ``decay`` is out of range.
        """
        decay = interface.check_scalar("decay", decay, interface.SHARE)
        if (new.p, new.axis) != (self.p, self.axis):
            raise ValueError(f"new must have p={self.p} and axis={self.axis}, got p={new.p} and axis={new.axis}")
        rows, others = self.rounded.shape, new.rounded.shape
        if others[max(0, len(others) - len(rows)) :] != rows:
            raise ValueError(f"new must have a threshold for each of the rows {rows}, got those of {others}")

        def mean(old: Array, now: Array) -> Array:
            now = now.mean(axis=range(now.ndim - old.ndim))
            weight = decay.astype(old.dtype)
            # Nothing is added that does not count, nor two infinities subtracted.
            kept, added = jnp.where(weight > 0, weight * old, 0), jnp.where(weight < 1, (1 - weight) * now, 0)
            return lax.stop_gradient(jnp.where(old == now, old, kept + added))

        return jax.tree.map(mean, self, new)


jax.tree_util.register_dataclass(TopkThreshold, ["rounded", "rest", "lam", "k"], ["p", "axis"])
jax.export.register_pytree_node_serialization(
    TopkThreshold,
    serialized_name=f"{__name__}.TopkThreshold",
    serialize_auxdata=lambda static: repr(static).encode(),
    deserialize_auxdata=lambda static: ast.literal_eval(static.decode()),
)


def topk_threshold(
    x: ArrayLike,
    k: ArrayLike | None = None,
    *,
    density: ArrayLike | None = None,
    lam: ArrayLike = 0.1,
    p: float = 2.0,
    axis: Axis = -1,
    where: ArrayLike | None = None,
) -> TopkThreshold:
    """Returns the threshold of ``topk_mask``, a function that gives these entries the same mask, and others theirs.

    Selection at test time then needs no batch, and entries may come one by one. ``threshold.ema`` is a mean of
    thresholds over training. Arguments and errors are as in ``topk_mask``; differentiable in ``x``, ``lam`` and ``k``.

    See also:
      `topk_mask` if no entries come later; `prefix_topk_threshold` for all prefixes of a sequence.

    >>> select = topk_threshold([1.0, 3.0, 2.5, 2.0], 2, lam=1.0)
    >>> select.tau, select([1.0, 3.0, 2.5, 2.0]), select([2.25, 10.0])
    (Array(1.75, dtype=float32), Array([0.  , 1.  , 0.75, 0.25], dtype=float32), Array([0.5, 1. ], dtype=float32))
    """
    x, p, zero = interface.real(x), interface.check_p(p), interface.rows_with_zero_lam(lam)
    rounded, rest, width, amounts = rowwise(
        _found,
        x,
        axis=axis,
        per_row={"k": (amount(k, density), interface.UP_TO_N), "lam": (lam, interface.STRENGTH)},
        where=where,
        returns=(interface.FULL_PRECISION_ROWS,) * 4,
        equation=Equation(p, zero=zero),
    )
    if not x.size:
        width = jnp.broadcast_to(jnp.asarray(lam, width.dtype), width.shape)
    axes = tuple(index - x.ndim for index in interface.check_axes(axis, x.ndim))
    return TopkThreshold(rounded, rest, width, amounts, p, axes[0] if len(axes) == 1 else axes)


def prefix_topk_threshold(
    x: ArrayLike, k: ArrayLike, *, lam: ArrayLike = 0.1, axis: int = -1, where: ArrayLike | None = None
) -> TopkThreshold:
    """Returns the threshold of ``topk_mask`` for every prefix of a sequence: causal selection, for ``p = 2``.

    ``prefix_topk_threshold(x, k).entry(x)`` is the mask of each entry among those up to it. Differentiable in ``x``,
    ``k`` and ``lam``. Later entries change neither a bit of a value nor a gradient. Takes O(n log(n)^2) time and
    O(n log n) memory, n the size along ``axis``; for a thousand entries or fewer, ``topk_threshold`` with all prefixes
    as rows takes less. In float32 the error of a mask entry is about 1e-14 times n times the largest entry over
    ``lam``, or that of rounding if that is larger.

    Args:
      x: real array, at least one dimension. ``-inf`` is absent; from the first NaN or ``+inf`` on, thresholds are NaN.
      k: how much is selected of each prefix, >= 0; broadcasts to the shape of ``x``, so that it may grow with the
        sequence. A shorter prefix is selected in full.
      lam: in [1e-32, 1e32], in the units of ``x``; one number, or one per sequence.
      axis: the axis along which the sequence goes.
      where: as in ``topk_mask``.

    Returns:
      A ``TopkThreshold`` with one threshold per entry of ``x``: that of the prefix which ends there, or, where an entry
      takes no part by ``where``, ``inf``, which selects nothing.

    Raises:
      ValueError: an argument known at trace time is out of range.

    See also:
      `topk_threshold` for one threshold; `topk_mask` if later entries may count.

    >>> x = jnp.array([1.0, 3.0, 2.5, 2.0])
    >>> prefix_topk_threshold(x, 2, lam=1.0).entry(x)
    Array([1.  , 1.  , 1.  , 0.25], dtype=float32)
    """
    x = interface.floating(x)
    amounts = interface.broadcast(interface.check_values("k", k, interface.NON_NEGATIVE), x.shape, "k", "x")
    rounded, rest, width = rowwise(
        _found_of_prefixes,
        x.astype(interface.working_dtype(x.dtype)),
        axis=interface.check_axis(axis, x.ndim),
        aligned={"k": amounts},
        per_row={"lam": (lam, interface.POSITIVE_STRENGTH)},
        where=where,
        returns=(interface.ENTRIES,) * 3,
    )
    return TopkThreshold(rounded, rest, width, jnp.asarray(amounts, rounded.dtype))


def _found_of_prefixes(x: Array, k: Array, lam: Array, where: Array | None = None) -> tuple[Array, Array, Array]:
    entries, lam = x if where is None else choose(where, x, -jnp.inf), jnp.broadcast_to(lam, x.shape)
    gamma = jax.vmap(prefix_thresholds)(entries, k, lam)
    if where is not None:
        gamma = select(where, gamma, TwoFloat(jnp.full_like(lam, jnp.inf), jnp.zeros_like(lam)))
    return gamma.hi, gamma.lo, lam


def _found(
    x: Array, k: Array, lam: Array, where: Array | None = None, *, equation: Equation
) -> tuple[Array, Array, Array, Array]:
    entries = x if where is None else choose(where, x, -jnp.inf)
    (keys,), gamma, (z,) = select_topk((entries,), k, lam, equation, None if where is None else (where,))
    selected, in_part = z > 0, (z > 0) & (z < 1) & (lam > 0)
    some, partly = (jnp.any(condition, axis=-1, keepdims=True) for condition in (selected, in_part))
    least = jnp.min(choose(selected, keys, jnp.inf), axis=-1, keepdims=True)
    largest = jnp.max(choose(selected, -jnp.inf, keys), axis=-1, keepdims=True)
    gamma = highest(gamma, lam, some, partly, least, largest)
    return gamma.hi, gamma.lo, lam, k


def _selected(
    x: Array, k: Array, lam: Array, rounded: Array, rest: Array, where: Array | None = None, *, p: float, zero: ZeroLam
) -> Array:
    equation, gamma = Equation(p, zero=zero), TwoFloat(rounded, rest)
    keys = equation.keys(x, lam)
    if where is not None:
        keys = choose(where, keys, -jnp.inf)
    z = selection(keys, gamma, lam, equation)
    if zero != "none":
        z = z + tied_selection((keys,), gamma, k, lam, equation.rows)[0]
    z = choose((rounded == jnp.inf) & (lam > 0), 0.0, z)  # of an absent entry, even of a NaN
    return z if where is None else choose(where, z, 0.0)
