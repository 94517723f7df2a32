"""The nonlinearities ``phi`` of the relaxed operators: the identity gives the mask, ``x^2 / 2`` the magnitudes."""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from .arithmetic import choose
from .interface import shown

Entrywise = Callable[[Array], Array]


@dataclasses.dataclass(frozen=True)
class Nonlinearity:
    """A convex function ``phi`` of one variable, with its derivatives and conjugate (Section 4 of Sander et al., 2023).

    An increasing ``phi`` orders entries by value. An even ``phi`` orders them by magnitude and keeps their signs; its
    functions are called with non-negative numbers only. All functions act entrywise, keep the dtype, and must be
    differentiable by JAX.

    Attributes:
      name: the name for display; it has no other effect.
      value: ``phi``.
      slope: ``phi'``, non-negative and non-decreasing.
      curvature: ``phi''``, non-negative.
      conjugate: ``phi*(y) = sup_x x * y - phi(x)`` for ``y >= 0``, ``inf`` outside its domain.
      even: whether ``phi(-x) = phi(x)``.

    See also:
      `relaxed_topk`, `relaxed_topk_value` and `topk_conjugate`, which take it as ``phi``.
    """

    name: str
    value: Entrywise
    slope: Entrywise
    curvature: Entrywise
    conjugate: Entrywise
    even: bool = False


def _exp(x: Array) -> Array:
    return jnp.exp(x - 1.0)


def _entropy(y: Array) -> Array:
    positive = y > 0
    return choose(positive, y * jnp.log(choose(positive, y, 1.0)), choose(y == 0, 0.0, jnp.inf, y.dtype))


IDENTITY = Nonlinearity(
    "identity",
    value=lambda x: x,
    slope=jnp.ones_like,
    curvature=jnp.zeros_like,
    conjugate=lambda y: choose(y == 1, 0.0, jnp.inf, y.dtype),
)
ABS = Nonlinearity(
    "abs",
    value=jnp.abs,
    slope=jnp.ones_like,
    curvature=jnp.zeros_like,
    conjugate=lambda y: choose(y <= 1, 0.0, jnp.inf, y.dtype),
    even=True,
)
HALF_SQUARE = Nonlinearity(
    "half_square",
    value=lambda x: 0.5 * jnp.square(x),
    slope=lambda x: x,
    curvature=jnp.ones_like,
    conjugate=lambda y: 0.5 * jnp.square(y),
    even=True,
)
EXP = Nonlinearity("exp", value=_exp, slope=_exp, curvature=_exp, conjugate=_entropy)


_NAMED = {phi.name: phi for phi in (IDENTITY, ABS, HALF_SQUARE, EXP)}


def nonlinearity(phi: str | Nonlinearity) -> Nonlinearity:
    """Returns the nonlinearity of a name, or the given one."""
    if isinstance(phi, Nonlinearity):
        return phi
    if not isinstance(phi, str) or phi not in _NAMED:
        raise ValueError(f"phi must be a Nonlinearity or one of {', '.join(map(repr, _NAMED))}, got {shown(phi)}")
    return _NAMED[phi]
