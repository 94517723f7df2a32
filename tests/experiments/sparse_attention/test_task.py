"""Examples: which key answers a query, what a text goes on with, and that no example is both trained and tested on."""

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.sparse_attention import task


@pytest.mark.parametrize(("name", "length"), [("recall", 32), ("sum", 64)])
def test_a_target_is_what_follows_its_key(name, length):
    tokens, targets, right = map(np.asarray, task.sample(name, length, jnp.arange(3, dtype=jnp.int32), held_out=False))
    assert tokens.max() < task.vocabulary(name, length)
    assert (targets[:, : length // 2] == task.NONE).all()
    for example in range(3):
        for query in range(length // 2, length):
            key, places = tokens[example, query], right[example, query]
            before = tokens[example, : length // 2].reshape(-1, 2)
            assert sorted(places) == sorted(2 * np.flatnonzero(before[:, 0] == key) + 1)
            values = tokens[example, places]
            expected = length // 2 + 2 + (values - length // 2).sum() if name == "sum" else values[0]
            assert targets[example, query] == expected


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
