"""Values of optimisation problems, whose derivatives are known where their solutions are (Danskin's theorem)."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero


def envelope(value: Array, arguments: tuple[Array, ...], slopes: tuple[Array, ...]) -> Array:
    """``value`` with the derivatives ``slopes`` in ``arguments``, and no others.

    What is differentiated again is the slopes, so that second derivatives are theirs.

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
