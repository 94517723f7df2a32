"""Dispatchers bring tokens to the experts and the weighted outputs back. Axes as in `routers/`.

    gather   copies tokens into slots and adds outputs up from there; its cost does not depend on S
    einsum   does the same by products with matrices of zeros and ones, [G, E, C, S]
    dense    lets every expert work on every token, without buffers: the oracle
    soft     multiplies by the matrices of Soft MoE

The first three agree if the buffers have room for all selected tokens. Groups never mix. Outputs are weighted and
summed in float32, then rounded once.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

import ops
from experiments.vmoe.routers import Mixtures, Slots

# Full precision, because accelerators would round the factors.
_product = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)


@dataclasses.dataclass(frozen=True)
class Dispatcher:
    """A pair of functions.

    Attributes:
      take: maps tokens [G, S, D] and the routing to slots [G, E, C, D].
      put: maps outputs of the experts [G, E, C, D] and the routing to tokens [G, S, D].
    """

    take: Callable[[Array, Any], Array]
    put: Callable[[Array, Any], Array]


def _gather(tokens: Array, routed: Slots) -> Array:
    return jax.vmap(ops.gather_slots)(tokens, routed.token)


def _scatter(outputs: Array, routed: Slots) -> Array:
    back = functools.partial(ops.scatter_slots, n=routed.gates.shape[1])
    return jax.vmap(back)(outputs, routed.token, routed.weight)


def _matrix(routed: Slots, dtype: jnp.dtype) -> Array:
    return jax.nn.one_hot(routed.token, routed.gates.shape[1], dtype=dtype)


def _take_by_product(tokens: Array, routed: Slots) -> Array:
    return _product("gecs,gsd->gecd", _matrix(routed, tokens.dtype), tokens)


def _put_by_product(outputs: Array, routed: Slots) -> Array:
    combine = _matrix(routed, jnp.dtype(jnp.float32)) * routed.weight[..., None]
    return _product("gecs,gecd->gsd", combine, outputs.astype(jnp.float32)).astype(outputs.dtype)


def _to_all(tokens: Array, routed: Slots) -> Array:
    groups, num_tokens, width = tokens.shape
    return jnp.broadcast_to(tokens[:, None], (groups, routed.token.shape[1], num_tokens, width))


def _from_all(outputs: Array, routed: Slots) -> Array:
    return _product("gse,gesd->gsd", routed.combine, outputs.astype(jnp.float32)).astype(outputs.dtype)


def _take_mixtures(tokens: Array, routed: Mixtures) -> Array:
    return _product("gsec,gsd->gecd", routed.dispatch, tokens.astype(jnp.float32)).astype(tokens.dtype)


def _put_mixtures(outputs: Array, routed: Mixtures) -> Array:
    return _product("gsec,gecd->gsd", routed.combine, outputs.astype(jnp.float32)).astype(outputs.dtype)


DISPATCHERS = {
    "gather": Dispatcher(_gather, _scatter),
    "einsum": Dispatcher(_take_by_product, _put_by_product),
    "dense": Dispatcher(_to_all, _from_all),
}
SOFT = Dispatcher(_take_mixtures, _put_mixtures)
