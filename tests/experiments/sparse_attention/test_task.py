"""Examples: which key answers a query, what a text goes on with, and that no example is both trained and tested on."""

import jax.numpy as jnp
import numpy as np

from experiments.sparse_attention import task


def test_a_target_is_what_follows_its_key():
    length, numbers = 32, jnp.arange(3, dtype=jnp.int32)
    tokens, targets, right = map(np.asarray, task.sample("recall", length, numbers, held_out=False))
    assert tokens.max() < task.vocabulary("recall", length)
    assert (targets[:, : length // 2] == task.NONE).all()
    for example in range(3):
        pairs = dict(tokens[example, : length // 2].reshape(-1, 2))
        assert len(pairs) == length // 4
        for query in range(length // 2, length):
            key, place = tokens[example, query], right[example, query]
            assert tokens[example, place - 1 : place + 1].tolist() == [key, targets[example, query]]
            assert pairs[key] == targets[example, query]


def test_text_goes_on_with_its_next_character_and_the_end_is_held_out():
    numbers = jnp.arange(200, dtype=jnp.int32)
    whole = "".join(map(chr, task.text()))
    cut = int(0.9 * len(whole))
    for held_out in (False, True):
        tokens, targets, _ = task.sample("text", 32, numbers, held_out)
        assert (tokens[:, 1:] == targets[:, :-1]).all()
        part = whole[cut:] if held_out else whole[:cut]
        assert all(
            "".join(map(chr, np.append(row, last))) in part for row, last in zip(tokens, targets[:, -1], strict=True)
        )
