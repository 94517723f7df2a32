"""What the public operators accept, checked before anything is computed."""

import operator
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

Vanishing = Literal["all", "some", "none"]


def known(value: Any) -> bool:
    """Whether a value can be looked at now: it is not being traced."""
    return not isinstance(value, jax.core.Tracer)


def check_p(p: float) -> float:
    """Checks the exponent of the regularisation."""
    if not known(p) or not isinstance(p, int | float | np.number):
        raise ValueError(f"p must be a Python number in (1, 2], got {p!r}")
    if not 1.0 < p <= 2.0:
        raise ValueError(f"p must be in (1, 2], got {p!r}")
    return float(p)


def check_axis(axis: int, ndim: int) -> int:
    """The axis as a non-negative number."""
    try:
        index = operator.index(axis)
    except TypeError:
        raise ValueError(f"axis must be an integer, got {axis!r}") from None
    if not -ndim <= index < ndim:
        raise ValueError(f"axis must be in [{-ndim}, {ndim}) for an array of {ndim} dimensions, got {axis!r}")
    return index % ndim


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """Checks a named choice."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return value


def check_range(name: str, value: ArrayLike, low: float, high: float, allowed: str) -> None:
    """Checks values against ``[low, high]`` if they are known; NaN passes, and marks its row later on."""
    if not known(value):
        return
    outside = (np.asarray(value) < low) | (np.asarray(value) > high)
    if np.any(outside):
        raise ValueError(f"{name} must be {allowed}, got {np.asarray(value)[outside].flat[0]}")


def check_where(where: ArrayLike, shape: tuple[int, ...]) -> Array:
    """The mask of the entries that take part, in the shape of the entries."""
    where = jnp.asarray(where, bool)
    try:
        return jnp.broadcast_to(where, shape)
    except ValueError:
        raise ValueError(f"where must broadcast to the shape of x, {shape}, got shape {where.shape}") from None


def which_vanish(lam: ArrayLike) -> Vanishing:
    """Which rows have ``lam = 0`` and so need the hard operator; what is not known might be some."""
    if not known(lam):
        return "some"
    zeros = np.asarray(lam) == 0
    return "all" if zeros.all() else "some" if zeros.any() else "none"


def per_row(name: str, value: ArrayLike, batch: tuple[int, ...], dtype: jnp.dtype) -> Array:
    """One value per row, shape ``(rows, 1)``, from a scalar or from an array that broadcasts against the batch."""
    value = jnp.asarray(value).astype(dtype)
    try:
        value = jnp.broadcast_to(value, batch)
    except ValueError:
        raise ValueError(
            f"{name} must be a scalar or broadcast to one value per row, shape {batch}, got shape {value.shape}"
        ) from None
    return value.reshape(-1, 1)


def floating(x: ArrayLike, name: str = "x") -> Array:
    """``x`` as a floating array; integers and booleans are promoted to JAX's default float."""
    x = jnp.asarray(x)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        raise ValueError(f"{name} must be real, got dtype {x.dtype}")
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.result_type(float))


def working_dtype(dtype: jnp.dtype) -> jnp.dtype:
    """The dtype computed in: at least float32."""
    return jnp.dtype(jnp.float64) if dtype == jnp.float64 else jnp.dtype(jnp.float32)
