"""Checks of arguments, and ``rowwise``, through which every operator accepts any shape, dtype and sharding.

Each error is one line that names the argument, its value and what is allowed. Values that are not known yet (traced, or
on devices of other processes) pass. ``rowwise`` compiles a function of rows, which sees matrices ``(rows, n)`` in at
least float32 and scalars per row as ``(rows, 1)``; axes, dtypes and shardings are handled here alone.
"""

import functools
import math
import operator
import re
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import NamedSharding, PartitionSpec, auto_axes
from jax.typing import ArrayLike

ZeroLam = Literal["all", "some", "none"]
Axis = int | tuple[int, ...] | None  # the axis along which entries compete, or several, or None for all
AxisName = str | tuple[str, ...] | None
Result = TypeVar("Result")

TINY, HUGE = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
WEAKEST, STRONGEST = 1e-32, 1e32  # the least positive and the largest strength of a regularisation
_MOST_ENTRIES = np.iinfo(np.int32).max  # the counters have 32 bits


class Range(NamedTuple):
    """The values that an argument may take.

    Attributes:
      allowed: the range in words, with ``{n}`` for the size along the axis and ``{axis}`` for the axis.
      low: the least value.
      high: the greatest value.
      share: if finite, the greatest value divided by ``n``, in place of ``high``.
      whole: whether values must be whole numbers that the working dtype represents exactly.
      integer: whether values have an integer dtype, which they keep.
      strength: whether values are strengths of a regularisation, equal to ``low`` or at least ``WEAKEST``. A traced one
        that is out of range becomes NaN, and so does its row.
    """

    allowed: str
    low: float = -np.inf
    high: float = np.inf
    share: float = np.inf
    whole: bool = False
    integer: bool = False
    strength: bool = False


UP_TO_N = Range("in [0, {n}], the size along axis {axis}", 0, share=1.0)
WHOLE_UP_TO_N = UP_TO_N._replace(whole=True)
INSIDE_N = Range("in (0, {n}), at least 1e-06 and at most (1 - 1e-06) * {n}", 1e-6, share=1 - 1e-6)
NON_NEGATIVE = Range("finite and >= 0", 0, HUGE)
POSITIVE = Range(f"positive and finite, at least {TINY:.2g}", TINY, HUGE)
SHARE = Range("in [0, 1]", 0, 1)
INTEGERS = Range("integers", integer=True)
STRENGTH = Range(f"0 or in [{WEAKEST}, {STRONGEST}]", 0, STRONGEST, strength=True)
POSITIVE_STRENGTH = Range(f"in [{WEAKEST}, {STRONGEST}]", WEAKEST, STRONGEST, strength=True)


def known(value: Any) -> bool:
    """Returns whether a value can be inspected now: it is not traced, and this process holds all of it."""
    return not isinstance(value, jax.core.Tracer) and getattr(value, "is_fully_addressable", True)


def shown(value: Any) -> str:
    """Returns a value as one short line for an error message."""
    if isinstance(value, jax.core.Tracer):
        return "a traced value"
    if isinstance(value, jax.Array | np.ndarray) and value.ndim:
        return f"{value.dtype} of shape {value.shape}"
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:76]} ..."


def exportable(result: type[Result]) -> type[Result]:
    """Registers a named tuple, so that ``jax.export`` can store functions that return it."""
    name = f"{result.__module__}.{result.__name__}"
    return jax.export.register_namedtuple_serialization(result, serialized_name=name)


def check_p(p: float) -> float:
    """Checks the exponent of the regularisation and returns it as a float."""
    if not known(p) or not isinstance(p, int | float | np.number):
        raise ValueError(f"p must be a Python number in (1, 2], got {shown(p)}")
    if not 1.0 < p <= 2.0:
        why = ": above 2 derivatives are unbounded" if p > 2 else ""
        why = ": p = 1 gives the hard operator; use lam=0" if p == 1 else why
        raise ValueError(f"p must be in (1, 2], got {p!r}{why}")
    return float(p)


def check_axis(axis: int, ndim: int, name: str = "x") -> int:
    """Returns the axis as a non-negative number."""
    try:
        index = operator.index(axis)
    except TypeError:
        raise ValueError(f"axis must be an integer, got {shown(axis)}") from None
    if ndim == 0:
        raise ValueError(f"{name} must have at least one dimension, got a scalar")
    if not -ndim <= index < ndim:
        raise ValueError(f"axis must be in [{-ndim}, {ndim}) for an array of {ndim} dimensions, got {axis!r}")
    return index % ndim


def check_axes(axis: Axis, ndim: int, name: str = "x") -> tuple[int, ...]:
    """Returns one axis or several as non-negative numbers in ascending order; ``None`` means all."""
    indices = tuple(range(ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = tuple(sorted(check_axis(index, ndim, name) for index in indices))
    if not axes or len(set(axes)) < len(axes):
        what = f"got a scalar {name}" if axis is None else f"got {axis!r}"
        raise ValueError(f"axis must be an integer, different integers, or None for all, {what}")
    return axes


def size_along(shape: tuple[int, ...], axes: tuple[int, ...], axis_name: AxisName = None) -> int:
    """Returns the number of entries along all ``axes`` together, on all devices over which they are split."""
    return math.prod(shape[axis] for axis in axes) * (1 if axis_name is None else lax.axis_size(axis_name))


def batch_shape(x: Array, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of ``x`` without ``axes``: that of one value per row."""
    return tuple(size for axis, size in enumerate(x.shape) if axis not in axes)


def check_count(name: str, count: int) -> None:
    """Checks that the number of competing entries is known and fits the counters."""
    if not isinstance(count, int):
        raise ValueError(
            f"{name} must have a known number of competing entries, got {count}; other sizes may be symbolic"
        )
    if count > _MOST_ENTRIES:
        raise ValueError(f"{name} must have at most {_MOST_ENTRIES} competing entries, got {count}")


def check_entries(name: str, x: Array, axis: Axis) -> None:
    """Checks that rows of ``x`` along ``axis`` have entries; there may be no rows."""
    if size_along(x.shape, check_axes(axis, x.ndim, name)) == 0:
        raise ValueError(f"{name} must have at least one entry along axis {axis}, got shape {x.shape}")


def share_of(density: ArrayLike, size: int, dtype: Any) -> Array | np.ndarray:
    """Returns ``density`` times ``size``, rounded down, in ``dtype``.

    It is computed in float64 for a density of 64 bits, such as a Python number, else in float32, with the same result
    whether the density is known or traced.
    """
    checked = check_values("density", density, SHARE)
    module: Any = np if known(checked) else jnp
    working: Any = np.float64 if checked.dtype.itemsize == 8 else np.float32
    density = module.asarray(checked).astype(working)
    share, slack = density * working(size), 4 * float(np.finfo(working).eps)
    # A product that is whole up to rounding counts as whole: in floats 0.1 * 70 is a little less than 7. Compilers may
    # fuse a product with a sum, which would round otherwise, but not with a comparison.
    nearest = module.round(share)
    count = module.where(density * working(size * (1 + slack)) >= nearest, nearest, module.floor(share))
    return module.minimum(count, size).astype(dtype)


class Share(NamedTuple):
    """The ``density`` of a row, which ``rowwise`` turns into a number of its entries (``share_of``)."""

    density: ArrayLike


def amount(k: ArrayLike | None, density: ArrayLike | None) -> Any:
    """Returns how much ``rowwise`` is to select of each row: ``k`` itself, or the share ``density`` of its entries."""
    check_one_of(k, density)
    return k if density is None else Share(density)


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """Checks that a value is one of the allowed names, and returns it."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {shown(value)}")
    return value


def check_flag(name: str, value: bool) -> bool:
    """Checks that a value is true or false, known at trace time, and returns it as a ``bool``."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def check_whole(name: str, value: int, low: float = -math.inf, high: float = math.inf, allowed: str = "") -> int:
    """Checks a whole number that must be known at trace time, and returns it as an ``int``."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number known at trace time, got {shown(value)}")
    if not low <= number <= high:
        raise ValueError(f"{name} must be {allowed}, got {number}")
    return number


def _array(value: Any) -> Array | np.ndarray:
    """Returns ``value`` as a JAX array if it is one, else as a NumPy array, of objects if it is no array at all."""
    try:
        is_plain = isinstance(value, jax.Array) and not jnp.issubdtype(value.dtype, jax.dtypes.extended)
        return value if is_plain else np.asarray(value)
    except (TypeError, ValueError):  # for example a ragged list, or a key of random numbers
        return np.empty(0, object)


def check_values(
    name: str, value: ArrayLike, limits: Range, n: int = 0, axis: Axis = 0, dtype: Any = np.float32
) -> Array | np.ndarray:
    """Returns ``value`` as an array of real numbers, after a check of known ones against ``limits``.

    ``n`` is the size along ``axis``, ``dtype`` the working dtype. A NaN passes only where every number is allowed.
    """
    array = _array(value)
    if isinstance(value, int) and array.dtype == object:  # beyond 64 bits, perhaps beyond floats
        array = np.asarray(float(min(max(value, -(10**300)), 10**300)))
    if not (jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(array.dtype, jnp.integer)):
        raise ValueError(f"{name} must be a real number or an array of real numbers, got {shown(value)}")
    if not known(array):
        return array
    numbers = np.asarray(array)

    def refuse(wrong: np.ndarray, allowed: str) -> None:
        if np.any(wrong):
            raise ValueError(f"{name} must be {allowed}, got {numbers[wrong].flat[0]}")

    high = limits.high if limits.share == np.inf else limits.share * n
    outside = (numbers < limits.low) | (numbers > high)
    if limits.low > -np.inf or high < np.inf:
        outside |= np.isnan(numbers)
    if limits.strength:
        outside |= (numbers > 0) & (numbers < WEAKEST)
    refuse(outside, limits.allowed.format(n=n, axis=axis))
    if limits.whole:
        refuse(numbers % 1 != 0, "a whole number")
        rounded = numbers.astype(dtype).astype(np.float64) != numbers.astype(np.float64)
        refuse(rounded, f"a number that {dtype} holds exactly")
    return array


def check_scalar(name: str, value: ArrayLike, limits: Range) -> Array:
    """Checks a scalar and returns it as an array, weakly typed if it is a Python number."""
    if check_values(name, value, limits).ndim:
        raise ValueError(f"{name} must be a scalar, got shape {np.shape(value)}")
    return jnp.asarray(value)


def strength(value: ArrayLike, limits: Range = STRENGTH) -> Array:
    """Returns a strength that was traced when it was checked, with NaN in place of values out of range."""
    value = jnp.asarray(value)
    allowed = (value >= WEAKEST) & (value <= limits.high)
    if limits.low == 0:
        # Comparisons may flush subnormal floats to 0, so 0 is recognised by its bits.
        kind = jnp.finfo(value.dtype)
        bits = lax.bitcast_convert_type(value, f"int{kind.bits}")
        allowed |= (value == 0) & ~((bits > 0) & (bits < 1 << kind.nmant))
    return jnp.where(allowed, value, jnp.nan)


def check_where(where: ArrayLike) -> Array | np.ndarray:
    """Returns ``where`` as a boolean array."""
    present = _array(where)
    if not (present.dtype == bool or jnp.issubdtype(present.dtype, jnp.integer)):
        raise ValueError(f"where must be a boolean array, got {shown(where)}")
    return present.astype(bool)


def check_labels(labels: ArrayLike, logits: Array, axis: int) -> tuple[Array, bool]:
    """Returns the labels of a classifier as an array, and whether they are integers, one per example.

    Those have the shape of ``logits`` without ``axis``. Others have one value per class, in the shape of ``logits``.
    """
    labels, batch = real(labels, "labels"), batch_shape(logits, (axis,))
    if labels.shape == logits.shape:
        return labels, False
    if jnp.issubdtype(labels.dtype, jnp.integer) and labels.shape == batch:
        # A signed dtype, so that an ``ignore_index`` may be negative, wide enough for any number of classes.
        return labels.astype(jnp.int64 if labels.dtype.itemsize == 8 else jnp.int32), True
    hint = ": squeeze them" if labels.shape == (*batch, 1) else ""
    raise ValueError(
        f"labels must be integers of shape {batch} or have the shape of logits, {logits.shape}; "
        f"got {labels.dtype} of shape {labels.shape}{hint}"
    )


def check_one_of(k: Any, density: Any) -> None:
    """Checks that exactly one of ``k`` and ``density`` is given."""
    if (k is None) == (density is None):
        raise ValueError(f"k must be given, or else density, got k={shown(k)}, density={shown(density)}")


def rows_with_zero_lam(lam: ArrayLike) -> ZeroLam:
    """Returns which rows need the hard operator because their ``lam`` is 0; ``"some"`` if ``lam`` is not known.

    Values are not checked, which ``rowwise`` does.
    """
    lam = _array(lam)
    if not known(lam):
        return "some"
    zeros = np.asarray(lam) == 0
    return "all" if zeros.all() else "some" if zeros.any() else "none"


def floating(x: ArrayLike, name: str = "x") -> Array:
    """Returns ``x`` as a floating array; integers and booleans are promoted to JAX's default float.

    Known integers that this float does not represent exactly are refused; traced ones are rounded.
    """
    x = real(x, name)
    if jnp.issubdtype(x.dtype, jnp.floating):
        return x
    dtype = jnp.result_type(float)
    if is_wide(x.dtype) and known(x):
        integers, most = np.asarray(x), 2 ** (jnp.finfo(dtype).nmant + 1)
        beyond = (integers > most) | (integers < -most)
        if np.any(beyond):
            raise ValueError(
                f"{name} must be whole numbers up to {most} in magnitude, which {dtype} holds exactly, "
                f"got {integers[beyond].flat[0]}; give floats, or set jax_enable_x64"
            )
    return x.astype(dtype)


def real(x: ArrayLike, name: str = "x") -> Array:
    """Returns ``x`` as an array of real numbers; integers and booleans keep their dtype."""
    if isinstance(x, jax.Array):
        array = x
    else:
        try:
            exact = np.asarray(x)
            array = jnp.asarray(x)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"{name} must be one array of real numbers, got {shown(x)}") from None
        if exact.dtype != array.dtype and exact.dtype.kind in "iu" and np.any(exact != exact.astype(array.dtype)):
            raise ValueError(f"{name} must be whole numbers that {array.dtype} holds; others need jax_enable_x64")
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise ValueError(f"{name} must be real, got dtype {array.dtype}")
    if not (array.dtype == bool or jnp.issubdtype(array.dtype, jnp.number)):
        raise ValueError(f"{name} must be one array of real numbers, got dtype {array.dtype}")
    return array


def is_wide(dtype: Any) -> bool:
    """Returns whether an integer dtype has values that JAX's default float does not represent exactly."""
    return jnp.issubdtype(dtype, jnp.integer) and jnp.iinfo(dtype).bits > jnp.finfo(jnp.result_type(float)).nmant + 1


def working_dtype(dtype: Any) -> np.dtype:
    """Returns the dtype of the computation: float64 for float64, else float32."""
    return jnp.dtype(jnp.float64) if dtype == jnp.float64 else jnp.dtype(jnp.float32)


# The kinds of results of a function of rows: one value per entry (rows, n); m values per row (rows, m), which take the
# place of the axis; one value per row (rows, 1); or one value per row that keeps the working dtype.
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
      function: takes rows ``(rows, n)``; a function of a module, since a new function object would be compiled anew.
      x: real array with at least one dimension; integers are promoted to float.
      axis: the axis of the rows. With several axes, or ``None`` for all, a row holds the entries of all in their order.
      name: the name of ``x`` in errors.
      aligned: real or boolean arrays that broadcast against ``x``; passed as rows.
      per_row: values that broadcast to one per row (the shape of ``x`` without ``axis``), or an ``amount``, with their
        ranges; passed as ``(rows, 1)``. New values compile nothing.
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
    x = floating(x, name)
    axes = check_axes(axis, x.ndim, name)
    size = size_along(x.shape, axes, axis_name)
    check_count(name, size)
    values = {}
    for key, (value, limits) in (per_row or {}).items():
        if isinstance(value, Share):
            value = share_of(value.density, size, working_dtype(x.dtype))
        checked = check_values(key, value, limits, size, axis, working_dtype(x.dtype))
        values[key] = _per_row(key, checked, x, axes, limits)
    others = {}
    for key, value in (aligned or {}).items():
        value = real(value, key)
        value = value if value.dtype == bool else floating(value, key)
        others[key] = broadcast(value, x.shape, key, name)
    present = None if where is None else broadcast(check_where(where), x.shape, "where", name)
    compiled = functools.partial(_compiled, function=function, axes=axes, returns=returns, static=tuple(static.items()))
    if x.size:
        return compiled(x, others, values, present, constants or {})

    # Without entries nothing is computed: the results are zeros of the shapes that they have for one entry.
    def of_one_entry(leaf: Array | np.ndarray) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(tuple(max(size, 1) for size in leaf.shape), jnp.result_type(leaf))

    def zeros(kind: str, result: jax.ShapeDtypeStruct) -> Array:
        shape = batch_shape(x, axes)
        if kind in (ENTRIES, FEATURES):
            shape = tuple(result.shape[i] if kind == FEATURES and i in axes else n for i, n in enumerate(x.shape))
        return jnp.zeros(shape, result.dtype)

    arguments = jax.tree.map(of_one_entry, (x, others, values, present))
    return jax.tree.map(zeros, returns, jax.eval_shape(compiled, *arguments, constants or {}))


@functools.partial(jax.jit, static_argnames=("function", "axes", "returns", "static"))
def _compiled(
    x: Array, *others: Any, function: Callable, axes: tuple[int, ...], returns: Any, static: tuple[tuple[str, Any], ...]
) -> Any:
    """Returns the results of ``rowwise``; ``others`` are its ``aligned``, ``per_row``, ``where`` and ``constants``."""
    dtype = working_dtype(x.dtype)

    def apply(x: Array, aligned: Any, per_row: Any, where: Array | None, constants: Any) -> Any:
        arguments = {key: value.reshape(-1, 1) for key, value in per_row.items()}
        for key, value in aligned.items():
            arguments[key] = _as_rows(value, axes, value.dtype if value.dtype == bool else dtype)
        if where is not None:
            arguments["where"] = _as_rows(where, axes, jnp.bool_)
        x = stored(x)
        rows, constants = varying_as((_as_rows(x, axes, dtype), constants), (x, aligned, per_row, where, constants))
        results = function(rows, **arguments, **constants, **dict(static))
        return jax.tree.map(functools.partial(_restored, x, axes), returns, results)

    specs = jax.tree.map(functools.partial(_spec, x, axes), returns)
    return on_mesh(apply, specs)(x, *others)


def target() -> tuple[str, str]:
    """Returns platform and kind of the device for which a program being traced is likely to be compiled.

    A mesh in force may name the device (a mesh of a topology does so without real devices). Otherwise it is
    ``jax.default_device``, or JAX's default device.
    """
    device: Any = jax.sharding.get_abstract_mesh().abstract_device
    if device is None:
        config: Any = jax.config  # JAX 0.10 does not declare the field
        chosen = config.jax_default_device
        device = chosen if isinstance(chosen, jax.Device) else jax.devices(chosen)[0]
    platform = device.platform
    # The compute capability is "9.0" on an NVIDIA GPU and "gfx942" on an AMD GPU.
    if platform == "gpu" and not re.match(r"[89]\.|\d\d\.", getattr(device, "compute_capability", "8.0")):
        platform = "other gpu"
    return {"gpu": "cuda"}.get(platform, platform), device.device_kind


def stored(values: Any) -> Any:
    """Returns arrays unchanged; a CPU computes them, and their gradients, once and stores them.

    Otherwise XLA computes an entry again in each loop that reads it, with everything before it: programs of operators
    that follow one another would grow quadratically.
    """
    return lax.optimization_barrier(values) if target()[0] == "cpu" else values


@jax.custom_jvp
def stored_if_differentiated(value: Array) -> Array:
    """Returns a floating result of an operator unchanged, and ``stored`` if it is differentiated.

    Then a later loop reads it, too. What only goes on from here is computed faster with what follows.
    """
    return value


@stored_if_differentiated.defjvp
def _stored_if_differentiated_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return stored_if_differentiated(stored(primals[0])), stored(tangents[0])


def _as_rows(x: Array, axes: tuple[int, ...], dtype: Any) -> Array:
    """Returns ``x`` as rows ``(rows, n)`` along ``axes``."""
    return jnp.moveaxis(x, axes, range(-len(axes), 0)).reshape(-1, size_along(x.shape, axes)).astype(dtype)


def _restored(x: Array, axes: tuple[int, ...], kind: str, found: Array) -> Array:
    """Returns a result of rows in the shape and dtype that the operator returns for ``x``."""
    if kind != FULL_PRECISION_ROWS and jnp.issubdtype(found.dtype, jnp.floating):
        found = stored_if_differentiated(found.astype(x.dtype))
    batch = batch_shape(x, axes)
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
    """Returns ``function`` in a form that also accepts arguments on a mesh with Explicit axes, for use inside ``jit``.

    On Explicit axes (those of ``jax.make_mesh``) JAX requires a sharding for the result of every operation. Here the
    compiler chooses, as on Auto axes, and only final results have a given sharding. Without Explicit axes the function
    is called as it is.

    Args:
      function: takes pytrees of arrays.
      specs: pytree with the ``PartitionSpec`` of each result over the Explicit axes.
    """

    def apply(*arguments: Any) -> Any:
        meshes = [jax.typeof(leaf).sharding.mesh for leaf in jax.tree.leaves(arguments)]
        for mesh in (*meshes, jax.sharding.get_abstract_mesh()):
            if mesh.explicit_axes:
                shardings = jax.tree.map(functools.partial(NamedSharding, mesh), specs)
                return auto_axes(function, axes=mesh.explicit_axes, out_sharding=shardings)(*arguments)
        return function(*arguments)

    return apply


def varying_as(tree: Any, like: Any) -> Any:
    """Returns ``tree``, typed inside ``shard_map`` as varying over every mesh axis over which ``like`` varies.

    JAX requires it of the initial values of a loop, whose types must be those of the values that its body returns.
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


def _per_row(
    name: str, value: Array | np.ndarray, x: Array, axes: tuple[int, ...], limits: Range
) -> Array | np.ndarray:
    """Returns one value per row, in the shape of ``x`` without ``axes``, from a scalar or an array that broadcasts."""
    batch, dtype = batch_shape(x, axes), working_dtype(x.dtype)
    # NumPy is faster, but in a traced program its arrays would become constants.
    is_known = known(value)  # asked before the conversion below
    small = value.ndim == 0 or isinstance(value, np.ndarray)
    module: Any = np if is_known and small and not isinstance(x, jax.core.Tracer) else jnp
    if not limits.integer:
        # NumPy's numbers become floats there: JAX would first cut whole ones to 32 bits.
        value = module.asarray(value.astype(dtype) if isinstance(value, np.ndarray) else value).astype(dtype)
    if limits.strength and not is_known:
        value = strength(value, limits)
    try:
        return module.broadcast_to(value, batch)
    except ValueError:
        squeezed = tuple(size for size in value.shape if size != 1) == tuple(size for size in batch if size != 1)
        hint = f": squeeze it, or reshape it to {batch}" if squeezed else ""
        raise ValueError(
            f"{name} must be a scalar or broadcast to one value per row, shape {batch}, got shape {value.shape}{hint}"
        ) from None
