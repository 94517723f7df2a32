"""Values with given derivatives: those of another operator, or those that Danskin's theorem gives an optimum."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero
from jax.typing import ArrayLike

from .interface import real


def straight_through(hard: ArrayLike, soft: ArrayLike) -> Array:
    """Returns ``hard`` with the derivatives of ``soft`` (the straight-through estimator of Bengio et al., 2013).

    Args:
      hard: floating array, for instance ``hard_topk_mag(x, k)``. It receives no gradient.
      soft: array of the same shape and dtype, for instance ``topk_mag(x, k)``.

    Raises:
      ValueError: the arrays are not floating, or differ in shape or dtype.

    See also:
      `hard_topk_mask` with `topk_mask`, `hard_topk_mag` with `topk_mag`; `pruning.Pruner` does it for a network.

    >>> straight_through(jnp.array([0.0, 1.0]), jnp.array([0.2, 0.8]))
    Array([0., 1.], dtype=float32)
    """
    hard, soft = real(hard, "hard"), real(soft, "soft")
    if not jnp.issubdtype(soft.dtype, jnp.floating):
        raise ValueError(f"soft must be a floating array, or it has no derivative, got {soft.dtype}")
    if hard.shape != soft.shape or hard.dtype != soft.dtype:
        raise ValueError(
            f"hard must have the shape and dtype of soft, {soft.dtype} of shape {soft.shape}, "
            f"got {hard.dtype} of shape {hard.shape}"
        )
    return _straight_through(hard, soft)


@jax.custom_jvp
def _straight_through(hard: Array, soft: Array) -> Array:
    return hard


@_straight_through.defjvp
def _straight_through_jvp(primals, tangents):
    hard, soft = primals
    # Applied again, so that second derivatives are those of `soft`, too.
    return _straight_through(hard, soft), tangents[1]


def envelope(value: Array, arguments: tuple[Array, ...], slopes: tuple[Array, ...]) -> Array:
    """Returns the optimal ``value`` of a problem with the derivatives that Danskin's theorem gives it.

    Those are ``slopes``, whose own derivatives are the second derivatives of ``value``.

    Args:
      value: shape ``(rows, 1)``.
      arguments: arrays of shape ``(rows, n)`` or ``(rows, 1)``.
      slopes: the partial derivative of ``value`` in each of them, of the same shape.
    """
    return _envelope(jax.lax.stop_gradient(value), arguments, slopes)


@jax.custom_jvp
def _envelope(value: Array, arguments: tuple[Array, ...], slopes: tuple[Array, ...]) -> Array:
    return value


def _envelope_jvp(primals, tangents):
    value, arguments, slopes = primals
    value_dot = jnp.zeros_like(value)
    for slope, argument_dot in zip(slopes, tangents[1], strict=True):
        if not isinstance(argument_dot, SymbolicZero):
            value_dot = value_dot + jnp.sum(slope * argument_dot, axis=-1, keepdims=True)
    return _envelope(value, arguments, slopes), value_dot


_envelope.defjvp(_envelope_jvp, symbolic_zeros=True)
