"""The filters of the first layer of a network, as images."""

from typing import Any

import jax
import jax.numpy as jnp

MAX_FILTERS = 16  # filters; those of a layer are many, and a page holds those of many runs


def images(filters: jax.Array, importance: jax.Array) -> jax.Array:
    """The filters of the largest importance, MAX_FILTERS of them at most, as images [N, H, W, 3] in [0, 1].

    Each is divided by its largest magnitude. Three channels are shown as colours, in which 0 is grey. Any other number
    of channels is averaged: blue is negative, white 0 and red positive.

    Args:
      filters: [D, H, W, C].
      importance: [D].
    """
    _, chosen = jax.lax.top_k(importance, min(MAX_FILTERS, len(filters)))
    shown = filters[chosen] if filters.shape[-1] == 3 else filters[chosen].mean(axis=-1, keepdims=True)
    largest = jnp.abs(shown).max(axis=(1, 2, 3), keepdims=True)
    shown = shown / jnp.where(largest == 0, 1, largest)
    if shown.shape[-1] == 3:
        return (1 + shown) / 2
    red, blue = 1 + jnp.minimum(shown, 0), 1 - jnp.maximum(shown, 0)
    return jnp.concatenate([red, 1 - jnp.abs(shown), blue], axis=-1)


def patch_filters(params: Any) -> dict[str, jax.Array]:
    """The filters of largest norm that embed the patches of a `vit.VisionTransformer` with these parameters."""
    filters = jnp.moveaxis(params["embedding"]["kernel"], -1, 0)  # [D, P, P, C]
    return {"patch_embedding": images(filters, jnp.linalg.norm(filters.reshape(len(filters), -1), axis=1))}


def unit_filters(kernel: jax.Array, shape: tuple[int, ...]) -> dict[str, jax.Array]:
    """The units with the most weights of a dense layer, [H * W * C, D], that sees images of `shape` [H, W, C]."""
    return {"first_layer": images(kernel.T.reshape(-1, *shape), jnp.count_nonzero(kernel, axis=0))}
