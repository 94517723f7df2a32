"""What is to be attended to: pairs of keys and values, followed by queries; or the characters of a text.

`B` examples, `L` tokens, `R` keys of attention that answer a query. An example is a function of its number.

    recall  `k v k v ...`, each k once; a query is a k, and its target the v that followed it: R = 1
    sum     each k four times, each time with a bit; the target is the sum of the four bits: R = 4
    text    characters of the source code of flax.linen; the target is the next one
"""

import functools
import hashlib
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen
from jax import Array

COPIES = {"recall": 1, "sum": 4}  # how often a key occurs among the pairs
NAMES = (*COPIES, "text")
NONE = -1  # no target, no key
CHARACTERS = 96
_HELD_OUT = 0.1  # the last part of the text, of which evaluation is made


class Examples(NamedTuple):
    """Tokens [B, L]; what follows or answers each, [B, L], or NONE; the positions of its right keys, [B, L, R]."""

    tokens: Array
    targets: Array
    right: Array


def vocabulary(name: str, length: int) -> int:
    """Returns the number of different tokens: half of those of pairs are keys."""
    return CHARACTERS if name == "text" else length


def sample(name: str, length: int, numbers: Array, held_out: bool) -> Examples:
    """Returns the examples with these numbers, [B] int32; of a text those of the part that is `held_out`, or not."""
    of_number = (
        functools.partial(_window, length, held_out) if name == "text" else functools.partial(_pairs, name, length)
    )
    return jax.vmap(lambda number: of_number(jax.random.fold_in(jax.random.key(0), number)))(numbers)


def _pairs(name: str, length: int, key: Array) -> Examples:
    """Half of the tokens are pairs, the other half queries: all keys, in another order in every round."""
    copies = COPIES[name]
    num_keys = length // (4 * copies)
    keys_key, values_key, place_key, order_key = jax.random.split(key, 4)
    keys = jax.random.permutation(keys_key, length // 2)[:num_keys].astype(jnp.int32)
    place = jax.random.permutation(place_key, num_keys * copies).reshape(num_keys, copies)  # of each pair
    last = length // 2 + 2 if name == "sum" else length
    values = jax.random.randint(values_key, place.shape, length // 2, last)
    answers = length // 2 + 2 + (values - length // 2).sum(axis=1) if name == "sum" else values[:, 0]

    context = jnp.zeros((num_keys * copies, 2), jnp.int32)
    context = context.at[place, 0].set(keys[:, None]).at[place, 1].set(values).reshape(length // 2)
    rounds = jax.random.split(order_key, length // 2 // num_keys)
    order = jax.vmap(lambda key: jax.random.permutation(key, num_keys))(rounds).reshape(length // 2)
    none = jnp.full((length // 2, copies), NONE)
    return Examples(
        jnp.concatenate([context, keys[order]]),
        jnp.concatenate([none[:, 0], answers[order]]),
        jnp.concatenate([none, 2 * place[order] + 1]),
    )


def _window(length: int, held_out: bool, key: Array) -> Examples:
    characters = text()
    cut = int((1.0 - _HELD_OUT) * len(characters))
    part = characters[cut:] if held_out else characters[:cut]
    start = jax.random.randint(key, (), 0, len(part) - length)
    window = jax.lax.dynamic_slice(jnp.asarray(part), (start,), (length + 1,))
    return Examples(window[:-1], window[1:], jnp.full((length, 1), NONE))


@functools.cache
def text() -> np.ndarray:
    """Returns the characters of the text, int32: printable ASCII from 1 on, all others 0."""
    files = sorted(Path(linen.__file__).parent.glob("*.py"))
    read = np.frombuffer("\n".join(file.read_text() for file in files).encode(), np.uint8).astype(np.int32)
    return np.where((read >= 32) & (read < 127), read - 31, 0).astype(np.int32)


def fingerprint() -> str:
    """Returns the SHA-256 of the text, which another version of flax changes."""
    return hashlib.sha256(text().tobytes()).hexdigest()
