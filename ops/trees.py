"""Top-k over a pytree of arrays, whose entries compete for one budget."""

from jax.typing import ArrayLike

from .groups import Channels, Groups  # noqa: F401 (Channels is in an example)
from .interface.rowwise import AxisName
from .leaves import Include, Tree, select_in_tree
from .nonlinearities import HALF_SQUARE, IDENTITY


def topk_mask_tree(
    scores: Tree,
    density: ArrayLike | None = None,
    *,
    k: ArrayLike | None = None,
    lam: ArrayLike = 0.1,
    p: float = 2.0,
    include: Include | None = None,
    per_leaf: bool = False,
    groups: Groups | None = None,
    axis_name: AxisName = None,
) -> Tree:
    """Returns the relaxed top-k mask of a whole pytree: about 1 for its largest entries, in whichever leaf.

    It equals ``topk_mask`` of all leaves concatenated, without concatenating them. Multiplying parameters by the mask
    of their scores prunes them. Arguments, differentiability and errors as in ``topk_mag_tree``.

    Args:
      scores: pytree of real arrays.
      density: share of the entries that is selected, in [0, 1], a scalar.
      k: instead of ``density``, how many entries are selected.
      lam: strength of the relaxation, in the units of the scores, as in ``topk_mask``; a scalar.
      p: exponent of the regularisation, in (1, 2].
      include: selects the leaves that take part.
      per_leaf: whether each leaf has a budget of its own.
      groups: which entries are selected together, by the mean of their scores.
      axis_name: mesh axis or axes over which every leaf is split, inside ``shard_map``.

    Returns:
      A pytree like ``scores``. Leaves that take no part become ones, so that multiplying by the mask does not change
      them; keys of ``jax.random``, functions and strings are returned unchanged.

    Raises:
      ValueError: an argument known at trace time is out of range, not exactly one of ``density`` and ``k`` is given, or
        no leaf takes part.

    >>> import jax.numpy as jnp
    >>> topk_mask_tree({"a": jnp.array([1.0, -3.0]), "b": jnp.array([2.0, 1.5])}, k=2, lam=1.0)
    {'a': Array([0.25, 0.  ], dtype=float32), 'b': Array([1.  , 0.75], dtype=float32)}
    """
    return select_in_tree(
        scores,
        density,
        k,
        IDENTITY,
        lam,
        p,
        include,
        per_leaf=per_leaf,
        groups=groups,
        axis_name=axis_name,
        name="scores",
    )


def topk_mag_tree(
    params: Tree,
    density: ArrayLike | None = None,
    *,
    k: ArrayLike | None = None,
    lam: ArrayLike = 0.1,
    p: float = 2.0,
    debias: bool = False,
    include: Include | None = None,
    per_leaf: bool = False,
    groups: Groups | None = None,
    axis_name: AxisName = None,
) -> Tree:
    """Returns the entries of a pytree after a relaxed top-k in magnitude that they all compete in.

    It equals ``topk_mag`` of all leaves concatenated, without concatenating them: each leaf keeps its shape and its
    sharding, and a pass over the data reduces to three scalars. Sharded leaves need no further arguments; inside
    ``shard_map``, ``axis_name`` names the mesh axes over which they are split.

    Args:
      params: pytree of real arrays. Leaves of integers (like a step count), booleans or keys of ``jax.random``, and
        leaves that are no arrays (functions, strings, Python numbers), take no part and are returned unchanged.
      density: share of the entries that is kept, in [0, 1], a scalar; ``k`` is ``density`` times the number of entries,
        rounded down.
      k: instead of ``density``, how many entries are kept: a real number, at most the number of entries; a scalar.
      lam: strength of the relaxation, as in ``topk_mag``; a scalar.
      p: exponent of the regularisation, in (1, 2].
      debias: whether to undo the shrinkage of kept entries.
      include: called with the key path and the array of every floating leaf; leaves for which it is false (for example
        biases) take no part and are returned unchanged.
      per_leaf: whether each leaf has a budget of its own, ``density`` or ``k`` of its entries. Then the result is
        ``topk_mag`` of each leaf as one row.
      groups: which entries are kept or pruned together, by their root mean square: ``Blocks``, tiles of a matrix, or
        ``Channels``, its rows or columns; then ``k`` counts groups, and ``density`` is a share of them. With ``NM``,
        ``k`` of every ``m`` consecutive entries are kept. ``None`` for single entries. Inside ``shard_map`` groups are
        formed within the part of each device.
      axis_name: mesh axis or axes over which every leaf is split, inside ``shard_map``.

    Returns:
      A pytree like ``params``.

    Raises:
      ValueError: an argument known at trace time is out of range, not exactly one of ``density`` and ``k`` is given, or
        no leaf takes part.

    >>> import jax.numpy as jnp
    >>> topk_mag_tree({"a": jnp.array([1.0, -3.0]), "b": jnp.array([2.0, 0.5])}, 0.5, lam=0.0)
    {'a': Array([ 0., -3.], dtype=float32), 'b': Array([2., 0.], dtype=float32)}
    >>> topk_mag_tree({"w": jnp.array([[1.0, 4.0], [2.0, -3.0]])}, k=1, lam=0.0, groups=Channels(-1))
    {'w': Array([[ 0.,  4.],
           [ 0., -3.]], dtype=float32)}
    """
    return select_in_tree(
        params,
        density,
        k,
        HALF_SQUARE,
        lam,
        p,
        include,
        debias=debias,
        per_leaf=per_leaf,
        groups=groups,
        axis_name=axis_name,
    )


def hard_topk_mask_tree(
    scores: Tree,
    density: ArrayLike | None = None,
    *,
    k: ArrayLike | None = None,
    include: Include | None = None,
    per_leaf: bool = False,
    groups: Groups | None = None,
    axis_name: AxisName = None,
) -> Tree:
    """Returns the top-k mask of a whole pytree: exactly ``k`` ones; the first of equal entries come first.

    It equals ``hard_topk_mask`` of all leaves concatenated. The derivative is 0. Arguments, result and errors as in
    ``topk_mask_tree``; ``k`` is a whole number.

    >>> import jax.numpy as jnp
    >>> hard_topk_mask_tree({"a": jnp.array([1.0, -3.0]), "b": jnp.array([2.0, 1.5])}, k=2)
    {'a': Array([0., 0.], dtype=float32), 'b': Array([1., 1.], dtype=float32)}
    """
    return select_in_tree(
        scores,
        density,
        k,
        IDENTITY,
        None,
        2.0,
        include,
        per_leaf=per_leaf,
        groups=groups,
        axis_name=axis_name,
        name="scores",
    )


def hard_topk_mag_tree(
    params: Tree,
    density: ArrayLike | None = None,
    *,
    k: ArrayLike | None = None,
    include: Include | None = None,
    per_leaf: bool = False,
    groups: Groups | None = None,
    axis_name: AxisName = None,
) -> Tree:
    """Returns the ``k`` entries of largest magnitude of a pytree unchanged, and zeros elsewhere.

    It equals ``hard_topk_mag`` of all leaves concatenated. The derivative is 1 for kept entries and 0 for the others.
    Arguments, result and errors as in ``topk_mag_tree``; ``k`` is a whole number.

    >>> import jax.numpy as jnp
    >>> hard_topk_mag_tree({"a": jnp.array([1.0, -3.0]), "b": jnp.array([2.0, 0.5])}, per_leaf=True, k=1)
    {'a': Array([ 0., -3.], dtype=float32), 'b': Array([2., 0.], dtype=float32)}
    """
    return select_in_tree(
        params,
        density,
        k,
        HALF_SQUARE,
        None,
        2.0,
        include,
        debias=True,
        per_leaf=per_leaf,
        groups=groups,
        axis_name=axis_name,
    )
