"""Applies a function of rows to arrays of any shape, dtype and sharding; every operator goes through ``rowwise``.

Arguments are checked, arrays are laid out as rows, and the row function is compiled. Results get the shape, dtype and
sharding of the argument. A row function sees matrices ``(rows, n)`` in at least float32 and scalars per row as
``(rows, 1)``; axes, dtypes and shardings are handled here alone.
"""

import functools
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec, auto_axes
from jax.typing import ArrayLike

from . import arguments
from .arguments import Axis, AxisName, Range

# Kinds of results of a row function: one value per entry (rows, n); m values per row (rows, m), which also go along the
# axis; one value per row (rows, 1); or one value per row that keeps the working dtype instead of the argument's dtype.
ENTRIES: Any = "entries"
FEATURES: Any = "features"
ROWS: Any = "rows"
FULL_PRECISION_ROWS: Any = "full_precision_rows"


def rowwise(
    function: Callable[..., Any],
    x: ArrayLike,
    *,
    axis: Axis,
    name: str = "x",
    aligned: Mapping[str, ArrayLike] | None = None,
    per_row: Mapping[str, tuple[ArrayLike, Range]] | None = None,
    where: ArrayLike | None = None,
    constants: Mapping[str, Any] | None = None,
    returns: Any = ENTRIES,
    axis_name: AxisName = None,
    **static: Hashable,
) -> Any:
    """Returns ``function`` of the rows of ``x`` along ``axis``; all other arguments are passed to it by name.

    Args:
      function: takes rows ``(rows, n)``. Use a function of a module: a new function object is compiled at every call.
      x: real array with at least one dimension; integers are promoted to float.
      axis: the axis of the rows. With several axes, or ``None`` for all, a row holds the entries of all in their order.
      name: the name of ``x`` in errors.
      aligned: real or boolean arrays that broadcast against ``x``; passed as rows.
      per_row: values that broadcast to one per row (the shape of ``x`` without ``axis``), with their ranges; passed as
        ``(rows, 1)``. New values compile nothing.
      where: boolean array that broadcasts against ``x``; passed as rows, if given.
      constants: pytrees of arrays without rows; passed unchanged.
      returns: pytree that says for each array the function returns which of ``ENTRIES``, ``FEATURES``, ``ROWS`` and
        ``FULL_PRECISION_ROWS`` it is. Floats get the dtype of ``x``, except ``FULL_PRECISION_ROWS``. Other dtypes stay.
      axis_name: name of the mesh axis (or axes) over which ``axis`` is split, inside ``jax.shard_map``.
      static: hashable arguments; a new value compiles a new program.

    Returns:
      The results of ``function``, in the shape of ``x``, without ``axis`` for one value per row. If ``x`` has no
      entries, zeros are returned and nothing is computed.

    Raises:
      ValueError: an argument is not as above, or known at trace time and out of range.
    """
    x = arguments.floating(x, name)
    axes = arguments.check_axes(axis, x.ndim, name)
    size = arguments.size_along(x.shape, axes, axis_name)
    arguments.check_count(name, size)
    values = {}
    for key, (value, limits) in (per_row or {}).items():
        checked = arguments.check_values(key, value, limits, size, axis, arguments.working_dtype(x.dtype))
        values[key] = _per_row(key, checked, x, axes, limits)
    others = {key: broadcast(_entries(value, key), x.shape, key, name) for key, value in (aligned or {}).items()}
    present = None if where is None else broadcast(arguments.check_where(where), x.shape, "where", name)
    compiled = functools.partial(_compiled, function=function, axes=axes, returns=returns, static=tuple(static.items()))
    if x.size:
        return compiled(x, others, values, present, constants or {})
    # Without entries nothing is computed: the results are zeros of the shapes that they have for one entry.
    one = jax.tree.map(_of_one_entry, (x, others, values, present))

    def zeros(kind: str, found: jax.ShapeDtypeStruct) -> Array:
        shape = arguments.batch_shape(x, axes)
        if kind in (ENTRIES, FEATURES):
            shape = tuple(found.shape[i] if kind == FEATURES and i in axes else n for i, n in enumerate(x.shape))
        return jnp.zeros(shape, found.dtype)

    return jax.tree.map(zeros, returns, jax.eval_shape(compiled, *one, constants or {}))


def amount(k: ArrayLike | None, density: ArrayLike | None, x: Array, axis: Axis, axis_name: AxisName = None) -> Any:
    """Returns how much is selected of each row of ``x``: ``k`` itself, or ``density`` times ``n``, rounded down."""
    arguments.check_one_of(k, density)
    if density is None:
        return k
    size = arguments.size_along(x.shape, arguments.check_axes(axis, x.ndim), axis_name)
    return arguments.share_of(density, size, arguments.working_dtype(x.dtype))


@functools.partial(jax.jit, static_argnames=("function", "axes", "returns", "static"))
def _compiled(
    x: Array,
    aligned: dict[str, Array],
    per_row: dict[str, Array],
    where: Array | None,
    constants: dict[str, Any],
    *,
    function: Callable[..., Any],
    axes: tuple[int, ...],
    returns: Any,
    static: tuple[tuple[str, Hashable], ...],
) -> Any:
    dtype = arguments.working_dtype(x.dtype)

    def apply(
        x: Array, aligned: dict[str, Array], per_row: dict[str, Array], where: Array | None, constants: dict[str, Any]
    ) -> Any:
        given: dict[str, Any] = {key: value.reshape(-1, 1) for key, value in per_row.items()}
        for key, value in aligned.items():
            given[key] = _as_rows(value, axes, value.dtype if value.dtype == bool else dtype)
        if where is not None:
            given["where"] = _as_rows(where, axes, jnp.bool_)
        rows, constants = varying_as((_as_rows(x, axes, dtype), constants), (x, aligned, per_row, where, constants))
        found = function(rows, **given, **constants, **dict(static))
        return jax.tree.map(functools.partial(_restored, x, axes), returns, found)

    specs = jax.tree.map(functools.partial(_spec, x, axes), returns)
    return on_mesh(apply, specs)(x, aligned, per_row, where, constants)


def _as_rows(x: Array, axes: tuple[int, ...], dtype: Any) -> Array:
    """Returns ``x`` as rows ``(rows, n)`` along ``axes``."""
    return jnp.moveaxis(x, axes, range(-len(axes), 0)).reshape(-1, arguments.size_along(x.shape, axes)).astype(dtype)


def _restored(x: Array, axes: tuple[int, ...], kind: str, found: Array) -> Array:
    """Returns a result of rows in the shape and dtype of ``x``."""
    if kind != FULL_PRECISION_ROWS and jnp.issubdtype(found.dtype, jnp.floating):
        found = found.astype(x.dtype)
    batch = arguments.batch_shape(x, axes)
    if kind in (ROWS, FULL_PRECISION_ROWS):
        return found.reshape(batch)
    along = found.shape[-1:] if kind == FEATURES else tuple(x.shape[axis] for axis in axes)
    return jnp.moveaxis(found.reshape(*batch, *along), range(-len(axes), 0), axes)


def _spec(x: Array, axes: tuple[int, ...], kind: str) -> PartitionSpec:
    """Returns the partition of a result over the mesh, which is that of ``x``."""
    kept = (
        None if axis in axes and kind == FEATURES else part
        for axis, part in enumerate(spec_of(x))
        if axis not in axes or kind in (ENTRIES, FEATURES)
    )
    return PartitionSpec(*kept)


def spec_of(x: Array) -> tuple[Any, ...]:
    """Returns, for each dimension, the Explicit mesh axes that divide it."""
    return tuple(jax.typeof(x).sharding.spec)


def on_mesh(function: Callable[..., Any], specs: Any) -> Callable[..., Any]:
    """Returns ``function``, for use inside ``jit``, that also accepts arguments on a mesh with Explicit axes.

    On Explicit axes (those of ``jax.make_mesh``) JAX requires a sharding for the result of every operation. Here the
    compiler chooses, as on Auto axes, and only final results have a given sharding. Without such axes nothing changes.

    Args:
      function: takes pytrees of arrays.
      specs: pytree with the ``PartitionSpec`` of each result over the Explicit axes.
    """

    def apply(*arguments: Any) -> Any:
        meshes = [jax.typeof(leaf).sharding.mesh for leaf in jax.tree.leaves(arguments)]
        meshes.append(jax.sharding.get_abstract_mesh())
        for mesh in meshes:
            explicit = tuple(
                name for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True) if kind == AxisType.Explicit
            )
            if explicit:
                shardings = jax.tree.map(lambda spec, mesh=mesh: NamedSharding(mesh, spec), specs)
                return auto_axes(function, axes=explicit, out_sharding=shardings)(*arguments)
        return function(*arguments)

    return apply


def varying_as(tree: Any, like: Any) -> Any:
    """Returns ``tree``, typed inside ``shard_map`` as varying over every mesh axis over which ``like`` varies.

    The initial values of a loop need the types of the values that its body returns.
    """

    def axes(leaf: Array) -> frozenset[str]:
        return frozenset(jax.typeof(leaf).manual_axis_type.varying)

    wanted = frozenset().union(*map(axes, jax.tree.leaves(like)))
    return jax.tree.map(lambda leaf: lax.pcast(leaf, tuple(sorted(wanted - axes(leaf))), to="varying"), tree)


def broadcast(value: Array | np.ndarray, shape: tuple[int, ...], name: str, other: str) -> Array | np.ndarray:
    """Returns ``value`` broadcast to the shape of another argument."""
    module: Any = jnp if isinstance(value, jax.Array) else np
    try:
        return module.broadcast_to(value, shape)
    except ValueError:
        raise ValueError(f"{name} must broadcast to the shape of {other}, {shape}, got shape {value.shape}") from None


def _entries(value: ArrayLike, name: str) -> Array:
    value = arguments.real(value, name)
    return value if value.dtype == bool else arguments.floating(value, name)


def _per_row(
    name: str, value: Array | np.ndarray, x: Array, axes: tuple[int, ...], limits: Range
) -> Array | np.ndarray:
    """Returns one value per row, in the shape of ``x`` without ``axes``, from a scalar or an array that broadcasts."""
    batch, dtype = arguments.batch_shape(x, axes), arguments.working_dtype(x.dtype)
    # NumPy is faster, but in a traced program its arrays would become constants.
    known = arguments.known(value)  # asked before the conversion below
    small = value.ndim == 0 or isinstance(value, np.ndarray)
    module: Any = np if known and small and not isinstance(x, jax.core.Tracer) else jnp
    if not limits.integer:
        # NumPy's numbers become floats there: JAX would first cut whole ones to 32 bits.
        value = module.asarray(value.astype(dtype) if isinstance(value, np.ndarray) else value).astype(dtype)
    if limits.strength and not known:
        value = arguments.strength(value, limits)
    try:
        return module.broadcast_to(value, batch)
    except ValueError:
        squeezed = tuple(size for size in value.shape if size != 1) == tuple(size for size in batch if size != 1)
        hint = f": squeeze it, or reshape it to {batch}" if squeezed else ""
        raise ValueError(
            f"{name} must be a scalar or broadcast to one value per row, shape {batch}, got shape {value.shape}{hint}"
        ) from None


def _of_one_entry(leaf: Array | np.ndarray) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(max(size, 1) for size in leaf.shape), jnp.result_type(leaf))
