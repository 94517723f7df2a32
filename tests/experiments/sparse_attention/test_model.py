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
TOKENS = np.random.default_rng(3).integers(0, 16, (2, LENGTH), np.int32)


@functools.cache
def model(name):
    made = Transformer(16, 8, 1, 2, 4, (0,), False, SELECTORS[name], K, K + 2)
    mode = Mode(True, jnp.float32(2.0), jnp.float32(0.7))
    return made, jax.jit(lambda key: made.init(key, TOKENS, mode))(jax.random.key(0)), mode


@functools.cache
def compiled(name, training):
    made, params, mode = model(name)
    apply = jax.jit(lambda tokens: made.apply(params, tokens, mode._replace(training=training)))
    return lambda tokens: jax.device_get(apply(tokens))


def random(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_attend_matches_numpy_in_both_forms():
    logits, values = random(0, 2, 2, 5, 5), random(1, 2, 5, 2, 3)
    keys = np.argsort(random(2, 2, 5, 5), axis=-1)[..., :3].astype(np.int32)
    weights = np.abs(random(3, 2, 5, 3)) * np.float32([1, 1, 0])
    spread = np.zeros((2, 5, 5), np.float32)
    np.put_along_axis(spread, keys, weights, axis=-1)
    powers = spread.astype(np.float64)[:, None] * np.exp(logits.astype(np.float64))
    expected = np.einsum("bhqk,bkhw->bqhw", powers / powers.sum(axis=-1, keepdims=True), values.astype(np.float64))
    of_slots = np.take_along_axis(logits, np.broadcast_to(keys[:, None], (2, 2, 5, 3)), axis=-1)
    by_slot = jax.jit(attend)(of_slots, values[np.arange(2)[:, None, None], keys], Selection(weights, keys))
    whole = jax.jit(attend)(logits, values, Selection(spread, None))
    np.testing.assert_allclose(by_slot, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(whole, expected, rtol=1e-5, atol=1e-6)


def test_unread_keys_have_exact_gradients():
    logits, values = random(0, 1, 1, 1, 4), random(1, 1, 4, 1, 2)
    weights, step = np.float32([[[1, 0, 1, 0]]]), np.float32(1e-3)
    changed = weights + step * np.eye(4, dtype=np.float32).reshape(4, 1, 1, 4)  # by key

    @jax.jit
    def found(logits, weights):
        def output(weights, logits):
            return attend(logits, values, Selection(weights, None)).sum()

        def far(weights, logits):
            return output(weights, 500.0 * logits)

        before, gradient = jax.value_and_grad(output)(weights, logits)
        after = jax.vmap(lambda weights: output(weights, logits))(changed)
        return before, after, gradient, jax.grad(far, argnums=(0, 1))(weights, logits)

    before, after, gradient, of_far = jax.device_get(found(logits, weights))
    for key in range(4):
        assert gradient[0, 0, key] == pytest.approx((after[key] - before) / step, rel=2e-2, abs=1e-3)
    assert all(np.isfinite(leaf).all() for leaf in of_far)


def test_teacher_is_the_mean_attention():
    where = np.tril(np.ones((4, 4), bool))[None]
    equal = np.zeros((1, 4, 4), np.float32)

    @jax.jit
    def found(logits):
        mean = jax.nn.softmax(logits, where=where[:, None]).mean(axis=1)
        other, gradient = jax.value_and_grad(divergence)(logits, equal, where)
        return divergence(logits, jnp.log(mean + 1e-30), where), other, gradient

    same, other, gradient = jax.device_get(found(random(0, 1, 2, 4, 4)))
    assert same == pytest.approx(0, abs=1e-6)
    assert other > 0.01
    assert not gradient.any()


@pytest.mark.parametrize("training", [True, False])
def test_logits_ignore_later_tokens(training):
    """With one selector; test_selectors.py has what the others select."""
    apply = compiled("straight_through", training)
    later = np.arange(LENGTH) >= LENGTH // 2
    before, after = apply(TOKENS), apply(np.where(later, 15 - TOKENS, TOKENS))
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
        tokens = np.where(np.arange(LENGTH) <= query, TOKENS, 0)  # a decoder has not seen later ones yet
        keys, logits, by_threshold = jax.device_get(decode(tokens, query))
        np.testing.assert_array_equal(keys, whole.selection.keys[:, query, :K])
        np.testing.assert_allclose(logits, whole.logits[:, query], atol=1e-5)
        assert [sorted(row) for row in keys.tolist()] == [np.flatnonzero(row).tolist() for row in by_threshold]


@pytest.mark.parametrize(
    ("name", "by_task", "by_teacher"),
    [("straight_through", True, False), ("added", True, False), ("kl", False, True), ("frozen", False, False)],
)
def test_indexer_learns_from_task_or_teacher(name, by_task, by_teacher):
    made, params, mode = model("straight_through")  # all selectors have the same parameters
    made = made.clone(selector=SELECTORS[name])

    def losses(params):
        output = made.apply(params, TOKENS, mode)
        return jnp.stack([output.logits[..., 0].sum(), output.teaching])

    gradient = jax.device_get(jax.jit(jax.jacrev(losses))(params))["params"]["attention_0"]
    moved = {
        name: (leaf["kernel"] != 0).any(axis=(1, 2)).tolist() for name, leaf in gradient.items() if "gain" not in name
    }
    assert moved["index_query"] == moved["index_key"] == [by_task, by_teacher]
    assert moved["qkv"] == [True, False]  # the teacher changes nothing but the indexer


def test_scores_of_keys_know_no_query():
    made = Transformer(16, 8, 1, 2, 4, (0,), False, SELECTORS["sparsek"], K, K)
    mode = Mode(False, jnp.float32(1.0), jnp.float32(0.2))
    output = jax.jit(lambda key: made.init_with_output(key, TOKENS, mode)[0])(jax.random.key(0))
    scores = np.asarray(output.scores)
    np.testing.assert_allclose(scores, np.broadcast_to(scores[:, :1], scores.shape), rtol=1e-5)
    assert np.std(scores[:, 0]) > 0.1
