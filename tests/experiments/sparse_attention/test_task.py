"""Examples: which key answers a query, what a text goes on with, and that no example is both trained and tested on."""

import jax.numpy as jnp
import numpy as np

from experiments.sparse_attention import task


def test_a_target_is_what_follows_its_key():
    length, numbers = 32, jnp.arange(3, dtype=jnp.int32)
    tokens, targets, right = map(np.asarray, task.sample("recall", length, numbers, "train"))
    assert tokens.max() < task.vocabulary("recall", length)
    assert (targets[:, : length // 2] == task.NONE).all()
    for example in range(3):
        pairs = dict(tokens[example, : length // 2].reshape(-1, 2))
        assert len(pairs) == length // 4
        for query in range(length // 2, length):
            key, place = tokens[example, query], right[example, query]
            assert tokens[example, place - 1 : place + 1].tolist() == [key, targets[example, query]]
            assert pairs[key] == targets[example, query]


def test_text_goes_on_with_its_next_character_and_parts_are_apart():
    numbers = jnp.arange(200, dtype=jnp.int32)
    whole = "".join(map(chr, task.text()))
    cuts = [int(share * len(whole)) for share in (0, 0.9, 0.95, 1)]
    for number, part in enumerate(("train", "validation", "test")):
        tokens, targets, _ = task.sample("text", 32, numbers, part)
        assert (tokens[:, 1:] == targets[:, :-1]).all()
        own = whole[cuts[number] : cuts[number + 1]]
        rows = np.concatenate([tokens, targets[:, -1:]], axis=1)
        assert all("".join(map(chr, row)) in own for row in rows)
