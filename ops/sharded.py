"""Top-k over more than one array: a whole pytree of parameters competing for one budget."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from ops.arguments import Vanishing, check_p, check_range, floating, which_vanish, working_dtype
from ops.equation import Equation
from ops.magnitude import magnitude_of
from ops.nonlinearities import HALF_SQUARE
from ops.rows import Rows
from ops.topk import AxisName


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
    sharding, and a pass over the data reduces to three scalars. Under ``jit`` with sharded leaves nothing else is
    needed; inside ``shard_map`` say over which mesh axes the leaves are split.

    Args:
      params: pytree of real floating arrays.
      density: share of the entries that is kept, in [0, 1]; ``k`` is ``density`` times the number of entries,
        rounded down.
      lam: strength of the relaxation, as in ``topk_mag``; a scalar.
      p: exponent of the regularisation, in (1, 2].
      debias: whether to undo the shrinkage of kept entries.
      include: called with the key path and the array of every leaf; leaves for which it is false are returned as
        they are and take no part (biases, say).
      axis_name: mesh axis or axes over which every leaf is split, inside ``shard_map``.

    Returns:
      A pytree like ``params``.

    Raises:
      ValueError: an argument known at trace time is out of range, or no leaf takes part.
    """
    p = check_p(p)
    check_range("density", density, 0, 1, "in [0, 1]")
    check_range("lam", lam, 0, float(jnp.finfo(jnp.float32).max), "finite and >= 0")
    paths, treedef = jax.tree_util.tree_flatten_with_path(params)
    chosen = [include is None or bool(include(path, leaf)) for path, leaf in paths]
    leaves = [floating(leaf, "params") for _, leaf in paths]
    entries = tuple(leaf for leaf, use in zip(leaves, chosen, strict=True) if use and leaf.size)
    if not entries:
        raise ValueError("params must have at least one leaf that takes part, got none")
    dtype = jnp.result_type(*(working_dtype(leaf.dtype) for leaf in entries))
    shards = 1 if axis_name is None else lax.axis_size(axis_name)
    size = shards * sum(leaf.size for leaf in entries)
    # The product is rounded before it is rounded down: 0.1 * 70 is a little less than 7.
    k = jnp.floor(jnp.asarray(density, dtype) * size * (1 + 4 * jnp.finfo(dtype).eps))
    kept = iter(
        _compiled(
            entries, k, jnp.asarray(lam, dtype), p=p, axis_name=axis_name, debias=bool(debias), zero=which_vanish(lam)
        )
    )
    results = [
        next(kept) if use and leaf.size else original
        for (_, original), leaf, use in zip(paths, leaves, chosen, strict=True)
    ]
    return jax.tree_util.tree_unflatten(treedef, results)


@functools.partial(jax.jit, static_argnames=("p", "axis_name", "debias", "zero"))
def _compiled(
    entries: tuple[Array, ...],
    k: Array,
    lam: Array,
    *,
    p: float,
    axis_name: AxisName,
    debias: bool,
    zero: Vanishing,
) -> tuple[Array, ...]:
    equation = Equation(p, HALF_SQUARE, Rows(None, axis_name))
    working = tuple(leaf.astype(k.dtype) for leaf in entries)
    kept = magnitude_of(working, k, lam, equation, zero=zero, debias=debias)
    return tuple(y.astype(leaf.dtype) for y, leaf in zip(kept, entries, strict=True))
