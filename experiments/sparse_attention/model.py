"""A small causal transformer, some layers of which read the keys that an indexer selects.

`B` examples, `L` tokens, `D` width, `H` heads of width `W`, `M` slots of a query.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from experiments.sparse_attention.selectors import SELECTORS, Scores, Selection, Selector, everything, hard
from ops import gather_slots

# By how much the logit of a key that is not read may exceed the best one's that is: it scales a gradient.
_LOGIT_CLIP = 2.3


class Mode(NamedTuple):
    """How selected keys are read: by the selector in training, or the k best."""

    training: bool
    lam: Array
    progress: Array


class Output(NamedTuple):
    """Logits [B, L, V], the loss of indexers that are taught, and the last layer's selection and scores [B, L, L]."""

    logits: Array
    teaching: Array
    selection: Selection | None
    scores: Array | None


def attend(logits: Array, values: Array, selection: Selection) -> Array:
    """Returns attention over the selected keys, [B, L, H, W].

    A key with weight m and logit a has the share m exp(a) of the sum. The derivative for m, at m = 0 too, says what
    reading a little of that key would change; for a logit far above those that are read it is cut, to ten times that of
    the largest of them.

    Args:
      logits: [B, H, L, M].
      values: [B, L, H, W], or by slot [B, L, M, H, W].
      selection: with M slots.
    """
    weights = selection.weights[:, None]
    largest = jnp.max(jnp.where(weights != 0, logits, -jnp.inf), axis=-1, keepdims=True)
    powers = weights * jnp.exp(jnp.minimum(logits - jax.lax.stop_gradient(largest), _LOGIT_CLIP))
    shares = powers / powers.sum(axis=-1, keepdims=True)
    return jnp.einsum("bhqk,bkhw->bqhw" if selection.keys is None else "bhqm,bqmhw->bqhw", shares, values)


def of_slots(array: Array, keys: Array) -> Array:
    """Returns what lies at the keys of the slots: [B, L, M, H, W] of [B, L, H, W]."""
    flat = array.reshape(*array.shape[:2], -1)
    return gather_slots(flat, keys).reshape(*keys.shape, *array.shape[2:])


class SparseAttention(nn.Module):
    """Attention over keys chosen by an indexer, whose scores are those of a single narrow head."""

    heads: int
    index_width: int
    selector: Selector
    k: int
    num_slots: int

    @nn.compact
    def __call__(self, x: Array, mode: Mode, shift: Array | float = 0.0) -> tuple[Array, Array, Selection, Array]:
        """Returns attention [B, L, D], the teaching loss, the selection, and scores, to which `shift` is added."""
        length, width = x.shape[1:]
        allowed = jnp.tril(jnp.ones((length, length), bool))[None]
        query, key, value = jnp.split(_split(nn.Dense(3 * width, use_bias=False, name="qkv")(x), 3 * self.heads), 3, 2)
        query = query * (width // self.heads) ** -0.5

        source = jax.lax.stop_gradient(x) if self.selector.taught else x
        asked = _unit(nn.Dense(self.index_width, use_bias=False, name="index_query")(source))
        asked = jnp.ones_like(asked) if self.selector.of_keys else asked
        offered = _unit(nn.Dense(self.index_width, use_bias=False, name="index_key")(source))
        gain = jnp.exp(self.param("index_gain", nn.initializers.zeros, ()))
        values = jnp.einsum("bqd,bkd->bqk", asked, offered) * self.index_width**-0.5 + shift
        scores = Scores(values, allowed, self.k, self.num_slots, mode.lam, mode.progress)

        if mode.training:
            selection = self.selector.select(scores)
        else:
            selection = everything(scores) if self.selector == SELECTORS["dense"] else hard(scores)
        scaled = mode.lam * gain * values
        if selection.keys is None:
            logits = jnp.einsum("bqhw,bkhw->bhqk", query, key)
        else:
            logits = jnp.einsum("bqhw,bqmhw->bhqm", query, of_slots(key, selection.keys))
            value = of_slots(value, selection.keys)
            if self.selector.added:
                logits += jnp.take_along_axis(scaled, selection.keys, axis=-1)[:, None]
        teaching = jnp.zeros(())
        if self.selector.taught and mode.training:
            teaching = divergence(logits, scaled, selection.weights != 0)
        mixed = attend(logits, value, selection).reshape(x.shape)
        return nn.Dense(width, use_bias=False, name="out")(mixed), teaching, selection, values


def divergence(logits: Array, scores: Array, where: Array) -> Array:
    """Returns the mean KL divergence of the softmax of `scores` [B, L, L] from the heads' mean attention, a constant.

    Args:
      logits: [B, H, L, L].
      where: boolean [B, L, L]: the keys that take part.
    """
    attention = jax.nn.softmax(logits, where=where[:, None]).mean(axis=1)
    target = jax.lax.stop_gradient(attention)
    log_shares = jax.nn.log_softmax(scores, where=where)
    terms = jax.scipy.special.xlogy(target, target) - jnp.where(where, target * log_shares, 0.0)
    return terms.sum(axis=-1).mean()


class Transformer(nn.Module):
    """Layers of attention and an MLP; those in `sparse` have an indexer.

    With `previous` each token is given the one before it in the second layer, by a matrix that begins as the identity:
    a convolution of width two, which recall needs and Arora et al. (2023) have, too.
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    index_width: int
    sparse: tuple[int, ...]
    previous: bool
    selector: Selector
    k: int
    num_slots: int

    @nn.compact
    def __call__(self, tokens: Array, mode: Mode, shift: Array | float = 0.0) -> Output:
        """Maps tokens [B, L] to logits; `shift` [B, L, L] is added to the last indexer's scores."""
        length = tokens.shape[1]
        x = nn.Embed(self.vocabulary, self.width, embedding_init=nn.initializers.normal(1.0))(tokens)
        x += self.param("positions", nn.initializers.normal(0.1), (length, self.width))[None]
        teaching, selection, scores = jnp.zeros(()), None, None
        for layer in range(self.layers):
            if self.previous and layer == 1:
                before = jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1]
                x += nn.Dense(self.width, use_bias=False, kernel_init=_identity, name="previous")(before)
            y = nn.RMSNorm()(x)
            if layer in self.sparse:
                attention = SparseAttention(
                    self.heads, self.index_width, self.selector, self.k, self.num_slots, name=f"attention_{layer}"
                )
                is_last = layer == max(self.sparse)
                y, taught, selection, scores = attention(y, mode, shift if is_last else 0.0)
                teaching += taught
            else:
                causal = nn.make_causal_mask(tokens)
                y = nn.MultiHeadDotProductAttention(self.heads, use_bias=False, name=f"attention_{layer}")(
                    y, mask=causal
                )
            x += y
            y = nn.Dense(2 * self.width)(nn.RMSNorm()(x))
            x += nn.Dense(self.width)(nn.gelu(y))
        logits = nn.Dense(self.vocabulary, use_bias=False, name="head")(nn.RMSNorm()(x))
        return Output(logits, teaching, selection, scores)


def _identity(key: Array, shape: tuple[int, int], dtype: Any) -> Array:
    return jnp.eye(*shape, dtype=dtype)


def _split(x: Array, heads: int) -> Array:
    """Divides the last axis: [B, L, heads, W] of [B, L, heads * W]."""
    return x.reshape(*x.shape[:2], heads, -1)


def _unit(x: Array) -> Any:
    """Divides by the root mean square of the last axis."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)
