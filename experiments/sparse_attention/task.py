"""What is to be attended to: pairs of keys and values, followed by queries; or the characters of a text.

`B` examples, `L` tokens, `R` right answers to a query. An example is a function of its number.

    recall   `k v k v ...`, each k once; a query is a k, and its target the v that followed it
    several  the same with each k four times, and each time another v: all four are right
    text     characters of the source code of flax.linen; the target is the next one
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

RIGHT = {"recall": 1, "several": 4, "text": 1}  # answers to a query, R
NAMES = tuple(RIGHT)
NONE = -1  # no target, no key
CHARACTERS = 96
_PARTS = {"train": (0.0, 0.9), "validation": (0.9, 0.95), "test": (0.95, 1.0)}  # of the text


class Examples(NamedTuple):
    """Tokens [B, L], what answers each, and the positions of the keys that say so, [B, L, R]: int32 or NONE."""

    tokens: Array
    targets: Array
    right: Array


def vocabulary(name: str, length: int) -> int:
    """Returns the number of different tokens: half of those of pairs are keys."""
    return CHARACTERS if name == "text" else length


def sample(name: str, length: int, numbers: Array, part: str) -> Examples:
    """Returns the examples with these numbers, [B] int32; of a text those of a part: train, validation or test."""

    def of_number(number: Array) -> Examples:
        key = jax.random.fold_in(jax.random.key(0), number)
        return _window(length, part, key) if name == "text" else _pairs(length, RIGHT[name], key)

    return jax.vmap(of_number)(numbers)


def _pairs(length: int, right: int, key: Array) -> Examples:
    """Half of the tokens are pairs, the other half queries: each key as often as there are tokens of its pairs."""
    num_keys = length // (4 * right)
    keys_key, values_key, place_key, order_key = jax.random.split(key, 4)
    keys = jax.random.permutation(keys_key, length // 2)[:num_keys].astype(jnp.int32)
    if right == 1:
        values = jax.random.randint(values_key, (num_keys, 1), length // 2, length)
    else:  # all different
        values = length // 2 + jax.random.permutation(values_key, length // 2)[: length // 4].astype(jnp.int32)
    values = values.reshape(num_keys, right)
    place = jax.random.permutation(place_key, values.size).reshape(values.shape)  # of each pair
    rounds = [jax.random.permutation(key, num_keys) for key in jax.random.split(order_key, 2 * right)]
    order = jnp.concatenate(rounds)
    of_pairs = jnp.stack([jnp.broadcast_to(keys[:, None], values.shape), values], axis=-1)
    pairs = jnp.zeros((length // 4, 2), jnp.int32).at[place].set(of_pairs)
    none = jnp.full((length // 2, right), NONE)
    return Examples(
        jnp.concatenate([pairs.reshape(-1), keys[order]]),
        jnp.concatenate([none, values[order]]),
        jnp.concatenate([none, 2 * place[order] + 1]),
    )


def _window(length: int, part: str, key: Array) -> Examples:
    characters = text()
    first, end = (int(share * len(characters)) for share in _PARTS[part])
    start = jax.random.randint(key, (), first, end - length)
    window = jax.lax.dynamic_slice(jnp.asarray(characters), (start,), (length + 1,))
    return Examples(window[:-1], window[1:, None], jnp.full((length, 1), NONE))


@functools.cache
def text() -> np.ndarray:
    """Returns the characters of the text, int32: printable ASCII from 1 on, all others 0."""
    files = sorted(Path(linen.__file__).parent.glob("*.py"))
    read = np.frombuffer("\n".join(file.read_text() for file in files).encode(), np.uint8).astype(np.int32)
    return np.where((read >= 32) & (read < 127), read - 31, 0).astype(np.int32)


def fingerprint() -> str:
    """Returns the SHA-256 of the text, which another version of flax changes."""
    return hashlib.sha256(text().tobytes()).hexdigest()
