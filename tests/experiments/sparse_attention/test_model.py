"""Attention over selected keys: an oracle, what its derivative says, causality, and decoding token by token."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.sparse_attention.model import Mode, Transformer, attend, divergence
from experiments.sparse_attention.selectors import SELECTORS, Selection
from ops import topk_threshold

LENGTH, K = 24, 3
TOKENS = jax.random.randint(jax.random.key(3), (2, LENGTH), 0, 16)


@functools.cache
def model(name):
    made = Transformer(16, 8, 1, 2, 4, (0,), False, SELECTORS[name], K, K + 2)
    mode = Mode(True, jnp.float32(2.0), jnp.float32(0.7))
    return made, made.init(jax.random.key(0), TOKENS, mode), mode


@functools.cache
def compiled(name, training):
    made, params, mode = model(name)
    return jax.jit(lambda tokens: made.apply(params, tokens, mode._replace(training=training)))


def random(key, *shape):
    return jax.random.normal(jax.random.key(key), shape)


def test_attend_matches_numpy_in_both_forms():
    logits, values = random(0, 2, 2, 5, 5), random(1, 2, 5, 2, 3)
    keys = jnp.argsort(random(2, 2, 5, 5), axis=-1)[..., :3].astype(jnp.int32)
    weights = jnp.abs(random(3, 2, 5, 3)).at[..., 2].set(0.0)
    take = functools.partial(jnp.take_along_axis, axis=-1)
    by_slot = attend(
        take(logits, jnp.broadcast_to(keys[:, None], (2, 2, 5, 3))),
        jax.vmap(lambda v, k: v[k])(values, keys),
        Selection(weights, keys),
    )
    spread = jax.vmap(jax.vmap(lambda w, k: jnp.zeros(5).at[k].set(w)))(weights, keys)
    whole = attend(logits, values, Selection(spread, None))
    powers = np.asarray(spread, np.float64)[:, None] * np.exp(np.asarray(logits, np.float64))
    expected = np.einsum("bhqk,bkhw->bqhw", powers / powers.sum(axis=-1, keepdims=True), np.asarray(values, np.float64))
    np.testing.assert_allclose(by_slot, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(whole, expected, rtol=1e-5, atol=1e-6)


def test_unread_keys_have_exact_gradients():
    logits, values = random(0, 1, 1, 1, 4), random(1, 1, 4, 1, 2)
    weights = jnp.array([[[1.0, 0.0, 1.0, 0.0]]])

    def output(weights):
        return attend(logits, values, Selection(weights, None)).sum()

    gradient = jax.grad(output)(weights)
    step = 1e-3
    for key in range(4):
        changed = float(output(weights.at[0, 0, key].add(step)) - output(weights)) / step
        assert float(gradient[0, 0, key]) == pytest.approx(changed, rel=2e-2, abs=1e-3)

    def far(logits, weights):
        return attend(500.0 * logits, values, Selection(weights, None)).sum()

    assert all(jnp.isfinite(leaf).all() for leaf in jax.grad(far, argnums=(0, 1))(logits, weights))


def test_teacher_is_the_mean_attention():
    where = jnp.tril(jnp.ones((4, 4), bool))[None]
    logits = random(0, 1, 2, 4, 4)
    mean = jax.nn.softmax(logits, where=where[:, None]).mean(axis=1)
    assert divergence(logits, jnp.log(mean + 1e-30), where) == pytest.approx(0, abs=1e-6)
    assert divergence(logits, jnp.zeros((1, 4, 4)), where) > 0.01
    assert not jax.grad(lambda logits: divergence(logits, jnp.zeros((1, 4, 4)), where))(logits).any()


@pytest.mark.parametrize("training", [True, False])
def test_logits_ignore_later_tokens(training):
    """With one selector; test_selectors.py has what the others select."""
    apply = compiled("straight_through", training)
    before, after = apply(TOKENS), apply(TOKENS.at[:, LENGTH // 2 :].set(15 - TOKENS[:, LENGTH // 2 :]))
    half = slice(0, LENGTH // 2)
    np.testing.assert_array_equal(before.logits[:, half], after.logits[:, half])
    assert (before.logits[:, LENGTH // 2 :] != after.logits[:, LENGTH // 2 :]).any()


def test_decoding_selects_the_training_keys():
    """As a decoder does, with the tokens so far alone; a threshold of their scores selects the same."""
    whole = compiled("straight_through", True)(TOKENS)
    made, params, mode = model("straight_through")

    @jax.jit
    def decode(tokens, query):
        output = made.apply(params, tokens, mode._replace(training=False))
        row, so_far = output.scores[:, query], (jnp.arange(LENGTH) <= query)[None]
        by_threshold = topk_threshold(row, K, lam=0.0, where=so_far)(row, where=so_far)
        return output.selection.keys[:, query], output.logits[:, query], by_threshold

    for query in range(K, LENGTH, 4):
        tokens = TOKENS.at[:, query + 1 :].set(0)  # a decoder has not seen them yet
        keys, logits, by_threshold = decode(tokens, query)
        np.testing.assert_array_equal(keys, whole.selection.keys[:, query, :K])
        np.testing.assert_allclose(logits, whole.logits[:, query], atol=1e-5)
        assert [sorted(row) for row in keys.tolist()] == [np.flatnonzero(row).tolist() for row in by_threshold]


@pytest.mark.parametrize(
    ("name", "by_task", "by_teacher"),
    [("straight_through", True, False), ("added", True, False), ("kl", False, True), ("frozen", False, False)],
)
def test_indexer_learns_from_task_or_teacher(name, by_task, by_teacher):
    made = Transformer(16, 8, 1, 2, 4, (0,), False, SELECTORS[name], K, K + 2)
    mode = Mode(True, jnp.float32(2.0), jnp.float32(0.2))
    params = made.init(jax.random.key(0), TOKENS, mode)

    def losses(params):
        output = made.apply(params, TOKENS, mode)
        return jnp.stack([output.logits[..., 0].sum(), output.teaching])

    gradient = jax.jit(jax.jacrev(losses))(params)["params"]["attention_0"]
    moved = {
        name: (leaf["kernel"] != 0).any(axis=(1, 2)).tolist() for name, leaf in gradient.items() if "gain" not in name
    }
    assert moved["index_query"] == moved["index_key"] == [by_task, by_teacher]
    assert moved["qkv"] == [True, False]  # the teacher changes nothing but the indexer


def test_scores_of_keys_know_no_query():
    made = Transformer(16, 8, 1, 2, 4, (0,), False, SELECTORS["sparsek"], K, K)
    mode = Mode(False, jnp.float32(1.0), jnp.float32(0.2))
    scores = made.apply(made.init(jax.random.key(0), TOKENS, mode), TOKENS, mode).scores
    np.testing.assert_allclose(scores, jnp.broadcast_to(scores[:, :1], scores.shape), rtol=1e-5)
    assert jnp.std(scores[:, 0]) > 0.1
