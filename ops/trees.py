"""Top-k operators of pytrees, whose leaves compete for one budget, or have one each."""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec
from jax.typing import ArrayLike

from . import interface
from .groups import NM, Channels, Groups, Whole, check_groups, rescaled, scaled, sizes, spread  # noqa: F401 (Channels is in an example)
from .interface import AxisName, Range, on_mesh, spec_of
from .layouts import layout_of
from .nonlinearities import HALF_SQUARE, IDENTITY, Nonlinearity
from .scalar.equation import Equation
from .scalar.magnitude import magnitude_of, share_at_zero
from .scalar.mask import mask_of
from .scalar.rows import ENTRIES_WORTH_DIVIDING, Rows, fewer

Include = Callable[[Any, Array], bool]
Tree = TypeVar("Tree")  # a pytree of any type, which the result has as well


def topk_mask_tree(
    scores: Tree,
    *,
    k: ArrayLike | None = None,
    density: ArrayLike | None = None,
    lam: ArrayLike = 0.1,
    p: float = 2.0,
    include: Include | None = None,
    per_leaf: bool = False,
    groups: Groups | None = None,
    axis_name: AxisName = None,
) -> Tree:
    """Returns the relaxed top-k mask of a whole pytree: about 1 for its ``k`` largest entries, 0 for most others.

    It equals ``topk_mask`` of all leaves concatenated. Multiplying parameters by the mask of their scores prunes them.
    Differentiable and raises errors like ``topk_mag_tree``.

    Args:
      scores: pytree of real arrays.
      lam: strength of the relaxation, in the units of the scores; a scalar. At 0 this is the hard mask.
      groups: which entries are selected together, by the mean of their scores.
      k, density, p, include, per_leaf, axis_name: as in ``topk_mag_tree``.

    Returns:
      A pytree like ``scores``. Leaves that take no part become ones, so that multiplying by the mask does not change
      them; keys of ``jax.random``, functions and strings are returned unchanged.

    See also:
      `topk_mask` for one array; `topk_mag_tree` for magnitudes; `pruning.Scored` for scores to learn.

    >>> topk_mask_tree({"a": jnp.array([1.0, -3.0]), "b": jnp.array([2.0, 1.5])}, k=2, lam=1.0)
    {'a': Array([0.25, 0.  ], dtype=float32), 'b': Array([1.  , 0.75], dtype=float32)}
    """
    return select_in_tree(IDENTITY, scores, k, density, include, per_leaf, groups, axis_name, lam=lam, p=p)


def topk_mag_tree(
    params: Tree,
    *,
    k: ArrayLike | None = None,
    density: ArrayLike | None = None,
    lam: ArrayLike = 0.1,
    p: float = 2.0,
    debias: bool = False,
    include: Include | None = None,
    per_leaf: bool = False,
    groups: Groups | None = None,
    axis_name: AxisName = None,
) -> Tree:
    """Returns a pytree with about the ``k`` entries of largest magnitude of all its leaves, and zeros elsewhere.

    It equals ``topk_mag`` of all leaves concatenated, though nothing is but small leaves on a CPU: others keep their
    sharding, and a pass over the data reduces to three scalars. Differentiable like ``topk_mag``.

    Args:
      params: pytree of real arrays. Leaves of integers (like a step count), booleans or keys of ``jax.random``, and
        leaves that are no arrays (functions, strings, Python numbers), take no part and are returned unchanged.
      k: how many entries are kept: a real number, at most the number of entries; a scalar.
      density: instead of ``k``, the share of the entries that is kept, in [0, 1], a scalar; ``k`` is then ``density``
        times the number of entries, rounded down.
      lam, p, debias: as in ``topk_mag``; ``lam`` is a scalar. At 0 the entries kept are unchanged, as by
        ``hard_topk_mag``.
      include: called with the key path and the array of every floating leaf; leaves for which it is false (for example
        biases) take no part and are returned unchanged.
      per_leaf: whether each leaf has a budget of its own, ``density`` or ``k`` of its entries. Then the result is
        ``topk_mag`` of each leaf as one row.
      groups: which entries are kept or pruned together, by their root mean square: ``Blocks``, tiles of a matrix, or
        ``Channels``, its rows or columns; then ``k`` counts groups, and ``density`` is a share of them. With ``NM``,
        ``k`` of every ``m`` consecutive entries are kept. Names tell which axes of a leaf are inputs, as `Pruner` says.
        ``None`` for single entries. Inside ``shard_map`` groups are formed within the part of each device.
      axis_name: mesh axis or axes over which every leaf is split inside ``shard_map``; elsewhere sharded leaves need no
        further argument.

    Returns:
      A pytree like ``params``.

    Raises:
      ValueError: an argument known at trace time is out of range, not exactly one of ``density`` and ``k`` is given, or
        no leaf takes part.

    See also:
      `topk_mag` for one array; `topk_mask_tree` for masks; `pruning.Pruner` for a network that trains; `Blocks`,
      `Channels` and `NM` for groups.

    >>> topk_mag_tree({"a": jnp.array([1.0, -3.0]), "b": jnp.array([2.0, 0.5])}, density=0.5, lam=0.0)
    {'a': Array([ 0., -3.], dtype=float32), 'b': Array([2., 0.], dtype=float32)}
    >>> topk_mag_tree({"w": jnp.array([[1.0, 4.0], [2.0, -3.0]])}, k=1, lam=0.0, groups=Channels("outputs"))
    {'w': Array([[ 0.,  4.],
           [ 0., -3.]], dtype=float32)}
    """
    options: Any = {"lam": lam, "p": p, "debias": debias}
    return select_in_tree(HALF_SQUARE, params, k, density, include, per_leaf, groups, axis_name, **options)


def is_array(leaf: Any) -> bool:
    """Returns whether a leaf is an array, unlike the functions, strings and Python numbers that modules may hold."""
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct) or hasattr(
        leaf, "__jax_array__"
    )


def check_predicate(name: str, predicate: Any) -> None:
    """Raises a ValueError unless a choice of leaves is ``None`` or a function."""
    if not (predicate is None or callable(predicate)):
        raise ValueError(f"{name} must be a function of key path and leaf, got {interface.shown(predicate)}")


def select_in_tree(
    phi: Nonlinearity,
    tree: Tree,
    k: ArrayLike | None,
    density: ArrayLike | None,
    include: Include | None,
    per_leaf: bool,
    groups: Groups | None,
    axis_name: AxisName = None,
    *,
    lam: ArrayLike | None = None,
    p: float = 2.0,
    debias: bool = False,
    stacked: Include | None = None,
    layout: Callable[[Any, int], str] = layout_of,
) -> Tree:
    """Returns ``tree`` after the operator of ``phi``; if ``lam`` is ``None``, after the hard operator.

    A leaf for which ``stacked`` is true holds one layer at each index of its first axis. Each layer is grouped, and
    with ``per_leaf`` budgeted, as a leaf of its own. ``layout`` says which axes of a leaf are inputs and outputs, given
    its path and the number of its axes without that of layers.
    """
    debias, per_leaf = interface.check_flag("debias", debias), interface.check_flag("per_leaf", per_leaf)
    p, hard, name = interface.check_p(p), lam is None, "scores" if phi == IDENTITY else "params"
    lam = 0.0 if lam is None else lam
    lam_scalar = interface.check_scalar("lam", lam, interface.STRENGTH)
    interface.check_one_of(k, density)
    share = None if density is None else interface.check_scalar("density", density, interface.SHARE)
    traced_share = density is not None and not interface.known(density)
    check_groups(groups)
    check_predicate("include", include)
    paths, treedef = jax.tree_util.tree_flatten_with_path(tree)
    results = [leaf for _, leaf in paths]
    chosen, layered, grouped = {}, [], []
    for index, (path, leaf) in enumerate(paths):
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
            continue
        if not is_array(leaf):
            if phi != HALF_SQUARE and isinstance(leaf, int | float):
                results[index] = jnp.ones_like(leaf)
            continue
        leaf_name = f"{name}{jax.tree_util.keystr(path)}"
        array = interface.real(leaf, leaf_name)
        if jnp.issubdtype(array.dtype, jnp.floating) and array.size and (include is None or include(path, leaf)):
            layered.append(stacked is not None and stacked(path, leaf))
            shape = array.shape[1:] if layered[-1] else array.shape
            grouped.append(groups and groups.on(layout(path, len(shape))))
            if grouped[-1] and (misfit := grouped[-1].misfit(shape)):
                raise ValueError(
                    f"{leaf_name} {misfit} for {groups}, got shape {shape}; include may leave it out, "
                    "and the layout of a Pruner names axes"
                )
            chosen[index] = array
        elif phi != HALF_SQUARE:
            results[index] = jnp.ones_like(array)
    if not chosen:
        raise ValueError(f"{name} must have at least one floating leaf that takes part, got none")
    leaves = tuple(chosen.values())
    # A single vector counts as a row, since on some devices a kernel solves rows.
    is_row = len(leaves) == leaves[0].ndim == 1 and groups is None and layered == [False]
    # A run always lies on one device, even if its leaf is divided.
    rows = Rows() if isinstance(groups, NM) else Rows(-1 if per_leaf or is_row else None, axis_name)
    parts = tuple(_part(*leaf, rows) for leaf in zip(leaves, layered, grouped, strict=True))
    numbers = [interface.size_along((part.width,), (0,), rows.axis_name) for part in parts]
    interface.check_count(name, sum(numbers) if rows.axis is None else max(numbers))
    amounts: tuple[Any, ...]
    if density is None:
        amounts = (_count(k, numbers, _working_dtype(leaves), rows, groups, hard),)
    elif traced_share:
        amounts = (share,)
    elif rows.axis is None:
        amounts = (interface.share_of(density, sum(numbers), _working_dtype(leaves)),)
    else:
        sizes_and_leaves = zip(numbers, leaves, strict=True)
        amounts = tuple(interface.share_of(density, size, _working_dtype((leaf,))) for size, leaf in sizes_and_leaves)
    equation = Equation(p, phi, rows, interface.rows_with_zero_lam(lam))
    options: Any = {"is_share": traced_share, "equation": equation, "parts": parts, "debias": debias}
    kept = _compiled(leaves, amounts, lam_scalar, **options)
    for index, leaf in zip(chosen, kept, strict=True):
        results[index] = leaf
    return jax.tree_util.tree_unflatten(treedef, results)


class _Part(NamedTuple):
    """The groups of the entries of a leaf, and how many entries or groups share one budget; static."""

    groups: Groups | None
    width: int


def _part(leaf: Array, layered: bool, groups: Groups | None, rows: Rows) -> _Part:
    if layered and groups is not None:
        groups = groups.with_layer_axis()
    width = leaf.size if groups is None else groups.count(leaf.shape)
    by_layer = layered and rows.axis is not None and not isinstance(groups, NM)
    return _Part(groups, width // leaf.shape[0] if by_layer else width)


def _count(k: Any, numbers: list[int], dtype: Any, rows: Rows, groups: Groups | None, whole: bool) -> Array:
    """Returns ``k`` as an array, after a check against the ``numbers`` of competing entries or groups."""
    largest, counted = sum(numbers), "entries" if groups is None else "groups"
    if rows.axis is not None:
        largest = min(numbers)
        counted = "entries of a run" if isinstance(groups, NM) else f"{counted} of the smallest leaf that takes part"
    limits = Range(f"in [0, {{n}}], the number of {counted}", 0, share=1.0, whole=whole)
    checked = interface.check_values("k", k, limits, n=largest, dtype=dtype)
    if checked.ndim:
        raise ValueError(f"k must be a scalar, got shape {checked.shape}")
    return jnp.asarray(checked.astype(dtype) if isinstance(checked, np.ndarray) else checked)


def _working_dtype(leaves: tuple[Array, ...]) -> np.dtype:
    """Returns the widest working dtype of the leaves; unlike promotion, this is allowed in strict mode, too."""
    return max((interface.working_dtype(leaf.dtype) for leaf in leaves), key=lambda dtype: dtype.itemsize)


@functools.partial(jax.jit, static_argnames=("is_share", "equation", "parts", "debias"))
def _compiled(
    entries: tuple[Array, ...],
    amounts: tuple[Array, ...],
    lam: Array,
    *,
    is_share: bool,
    equation: Equation,
    parts: tuple[_Part, ...],
    debias: bool,
) -> tuple[Array, ...]:
    """Returns the leaves after the operator.

    ``amounts`` holds ``k`` for all leaves together or for each, or, if ``is_share``, a density for all.
    """
    signed = equation.linear
    # For groups the hard operator is a mask, so that a kept group of zeros has the derivative 1.
    hard_groups = isinstance(parts[0].groups, Whole) and equation.zero == "all"
    if hard_groups:
        equation = dataclasses.replace(equation, phi=IDENTITY)
    operator = mask_of if equation.linear else functools.partial(magnitude_of, debias=debias)

    def solve(
        leaves: tuple[Array, ...], parts: tuple[_Part, ...], amount: Array, lam: Array, equation: Equation = equation
    ) -> tuple[Array, ...]:
        """Returns the operator of one leaf, or of several that compete with each other."""
        dtype = _working_dtype(leaves)
        width = sum(part.width for part in parts)
        size = interface.size_along((width,), (0,), equation.rows.axis_name)
        k, lam = amount.astype(dtype), interface.strength(lam.astype(dtype))
        if is_share:
            k = jnp.asarray(interface.share_of(amount, size, dtype))
        working = tuple(leaf.astype(dtype) for leaf in leaves)
        competing = tuple(_competing(x, part.groups, signed) for x, part in zip(working, parts, strict=True))
        rows = competing
        if equation.rows.axis is not None:
            rows = tuple(s.reshape(-1, width) for s in competing)
            k, lam = (jnp.broadcast_to(scalar, (len(rows[0]), 1)) for scalar in (k, lam))
        kept = operator(rows, k, lam, equation)
        kept = tuple(y.reshape(s.shape) for y, s in zip(kept, competing, strict=True))

        if isinstance(parts[0].groups, Whole) and not signed and not hard_groups:
            nonzero = equation.rows.sum(lambda s: s > 0, rows)
            at_zero = share_at_zero(k, nonzero, jnp.full_like(nonzero, size), lam, equation.p)
            # A group of zeros has the derivative of an entry that is 0.
            if not debias:
                at_zero = at_zero * (1.0 / (1.0 + lam) if equation.p == 2 else jnp.where(lam == 0, 1.0, 0.0))
            at_zero = at_zero.astype(dtype)

        def rebuild(groups: Groups | None, x: Array, s: Array, y: Array) -> Array:
            """Returns a leaf from the operator's values ``y`` of its entries or groups."""
            if groups is None:
                return y
            if isinstance(groups, NM):
                return groups.join(y, x.shape)
            if signed:
                return spread(groups, y, x)
            if hard_groups:
                return scaled(groups, x, y)
            along_layers = (-1, *(1,) * (s.ndim - 1)) if at_zero.ndim else ()
            return rescaled(groups, x, s, y, at_zero.reshape(along_layers))

        together = zip(parts, working, competing, kept, leaves, strict=True)
        rebuilt = (rebuild(part.groups, x, s, y).astype(leaf.dtype) for part, x, s, y, leaf in together)
        return tuple(map(interface.stored_if_differentiated, rebuilt))

    def apply(entries: tuple[Array, ...], amounts: tuple[Array, ...], lam: Array) -> tuple[Array, ...]:
        entries = interface.stored(entries)
        if equation.rows.axis is None:
            runs = _runs(entries, parts, equation.rows)
            joined = tuple(_joined([entries[place] for place in run]) for run in runs)
            of_runs = tuple(_Part(parts[run[0]].groups, sum(parts[place].width for place in run)) for run in runs)
            rows = dataclasses.replace(equation.rows, axis=-1 if len(runs) == 1 < len(entries) else None)
            kept = solve(joined, of_runs, amounts[0], lam, dataclasses.replace(equation, rows=rows))
            apart = (_apart(y, [entries[place] for place in run]) for run, y in zip(runs, kept, strict=True))
            return tuple(itertools.chain.from_iterable(apart))
        each = amounts if len(amounts) == len(entries) else amounts * len(entries)
        solver = jax.jit(solve, static_argnums=1)  # leaves of one shape share what is traced
        return tuple(solver((leaf,), (part,), k, lam)[0] for leaf, part, k in zip(entries, parts, each, strict=True))

    return on_mesh(apply, tuple(PartitionSpec(*spec_of(leaf)) for leaf in entries))(entries, amounts, lam)


def _runs(leaves: tuple[Array, ...], parts: tuple[_Part, ...], rows: Rows) -> list[list[int]]:
    """Returns the places of leaves to join: small ones of one dtype that follow one another, and only on a CPU.

    A CPU compiles and starts each array of a pass on its own. Copies of large arrays would take longer than that.
    """
    on_one_device = rows.axis_name is None and jax.device_count() == 1 and interface.target()[0] == "cpu"

    def kind(place: int) -> Any:
        few = fewer((leaves[place],), ENTRIES_WORTH_DIVIDING)
        return (leaves[place].dtype,) if on_one_device and few and parts[place].groups is None else place

    return [list(run) for _, run in itertools.groupby(range(len(leaves)), kind)]


def _joined(leaves: list[Array]) -> Array:
    # A CPU would compute, and compile, the gradient of each leaf on its own; in `_apart` the operator.
    return leaves[0] if len(leaves) == 1 else interface.stored(jnp.concatenate([leaf.ravel() for leaf in leaves]))


def _apart(joined: Array, leaves: list[Array]) -> list[Array]:
    """Returns the parts of what was ``_joined`` from leaves, in their shapes."""
    if len(leaves) == 1:
        return [joined]
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
    parts = jnp.split(interface.stored(joined), ends.tolist())
    return [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]


def _competing(x: Array, groups: Groups | None, signed: bool) -> Array:
    """Returns what competes in a leaf: its entries, its runs as rows, or the sizes of its groups."""
    if groups is None:
        return x
    return groups.runs(x) if isinstance(groups, NM) else sizes(groups, x, signed=signed)
