"""Examples: which key answers a query, what a text goes on with, and that no example is both trained and tested on."""

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.sparse_attention import task


@pytest.mark.parametrize("name", ["recall", "several"])
def test_a_target_is_what_follows_its_key(name):
    length, numbers, right = 32, jnp.arange(3, dtype=jnp.int32), task.RIGHT[name]
    tokens, targets, places = map(np.asarray, task.sample(name, length, numbers, "train"))
    assert tokens.max() < task.vocabulary(name, length)
    assert (targets[:, : length // 2] == task.NONE).all()
    for example in range(3):
        pairs = {tuple(pair) for pair in tokens[example, : length // 2].reshape(-1, 2).tolist()}
        assert len(pairs) == length // 4
        assert len({key for key, _ in pairs}) == length // 4 // right
        for query in range(length // 2, length):
            key, answers = tokens[example, query], targets[example, query].tolist()
            assert tokens[example, places[example, query]].tolist() == answers
            assert {(key, answer) for answer in answers} == {pair for pair in pairs if pair[0] == key}
            assert (tokens[example, places[example, query] - 1] == key).all()


def test_text_targets_are_next_characters():
    numbers = jnp.arange(200, dtype=jnp.int32)
    whole = "".join(map(chr, task.text()))
    cuts = [int(share * len(whole)) for share in (0, 0.9, 0.95, 1)]
    for number, part in enumerate(("train", "validation", "test")):
        tokens, targets, _ = task.sample("text", 32, numbers, part)
        assert (tokens[:, 1:] == targets[:, :-1, 0]).all()
        own = whole[cuts[number] : cuts[number + 1]]
        rows = np.concatenate([tokens, targets[:, -1]], axis=1)
        assert all("".join(map(chr, row)) in own for row in rows)
