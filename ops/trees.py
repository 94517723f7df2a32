"""Top-k over more than one array: a whole pytree of parameters competing for one budget."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import PartitionSpec
from jax.typing import ArrayLike

from .interface.arguments import (
    STRENGTH,
    Range,
    Vanishing,
    check_p,
    check_scalar,
    real,
    strength,
    which_vanish,
    working_dtype,
)
from .interface.rowwise import AxisName, on_mesh, spec_of
from .nonlinearities import HALF_SQUARE
from .scalar.equation import Equation
from .scalar.magnitude import magnitude_of
from .scalar.rows import Rows

_SHARE = Range("in [0, 1]", 0, 1)


def topk_mag_tree(
    params: Any,
    density: ArrayLike,
    *,
    lam: ArrayLike = 0.1,
    p: float = 2.0,
    debias: bool = False,
    include: Callable[[Any, Array], bool] | None = None,
    axis_name: AxisName = None,
) -> Any:
    """Global relaxed top-k in magnitude: keeps a share of all entries of a pytree, whichever leaves they lie in.

    Equal to ``topk_mag`` of all leaves concatenated, without concatenating them: each leaf keeps its shape and its
    sharding, and a pass over the data reduces to three scalars. With sharded leaves nothing else is needed; inside
    ``shard_map`` say over which mesh axes the leaves are split.

    Args:
      params: pytree of real arrays. Those of integers, booleans or keys of ``jax.random`` (a count of steps, say) take
        no part and are returned as they are.
      density: share of the entries that is kept, in [0, 1], a scalar; ``k`` is ``density`` times the number of entries,
        rounded down.
      lam: strength of the relaxation, as in ``topk_mag``; a scalar.
      p: exponent of the regularisation, in (1, 2].
      debias: whether to undo the shrinkage of kept entries.
      include: called with the key path and the array of every floating leaf; leaves for which it is false are returned
        as they are and take no part (biases, say).
      axis_name: mesh axis or axes over which every leaf is split, inside ``shard_map``.

    Returns:
      A pytree like ``params``.

    Raises:
      ValueError: an argument known at trace time is out of range, or no leaf takes part.

    >>> topk_mag_tree({"a": jnp.array([1.0, -3.0]), "b": jnp.array([2.0, 0.5])}, 0.5, lam=0.0)
    {'a': Array([ 0., -3.], dtype=float32), 'b': Array([2., 0.], dtype=float32)}
    """
    p = check_p(p)
    density, lam = check_scalar("density", density, _SHARE), check_scalar("lam", lam, STRENGTH)
    paths, treedef = jax.tree_util.tree_flatten_with_path(params)
    results = [leaf for _, leaf in paths]
    chosen = {}
    for index, (path, leaf) in enumerate(paths):
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
            continue
        array = real(leaf, f"params{jax.tree_util.keystr(path)}")
        if jnp.issubdtype(array.dtype, jnp.floating) and array.size and (include is None or include(path, leaf)):
            chosen[index] = array
    if not chosen:
        raise ValueError("params must have at least one floating leaf that takes part, got none")
    kept = _compiled(
        tuple(chosen.values()),
        density,
        lam,
        equation=Equation(p, HALF_SQUARE, Rows(None, axis_name)),
        debias=bool(debias),
        zero=which_vanish(lam),
    )
    for index, leaf in zip(chosen, kept, strict=True):
        results[index] = leaf
    return jax.tree_util.tree_unflatten(treedef, results)


@functools.partial(jax.jit, static_argnames=("equation", "debias", "zero"))
def _compiled(
    entries: tuple[Array, ...], density: Array, lam: Array, *, equation: Equation, debias: bool, zero: Vanishing
) -> tuple[Array, ...]:
    dtype = jnp.result_type(*(working_dtype(leaf.dtype) for leaf in entries))
    axis_name = equation.rows.axis_name
    size = (1 if axis_name is None else lax.axis_size(axis_name)) * sum(leaf.size for leaf in entries)

    def apply(entries: tuple[Array, ...], density: Array, lam: Array) -> tuple[Array, ...]:
        # The product is rounded before it is rounded down: 0.1 * 70 is a little less than 7.
        k = jnp.floor(density.astype(dtype) * size * (1 + 4 * jnp.finfo(dtype).eps))
        working = tuple(leaf.astype(dtype) for leaf in entries)
        kept = magnitude_of(working, k, strength(lam.astype(dtype)), equation, zero=zero, debias=debias)
        return tuple(y.astype(leaf.dtype) for y, leaf in zip(kept, entries, strict=True))

    return on_mesh(apply, tuple(PartitionSpec(*spec_of(leaf)) for leaf in entries))(entries, density, lam)
