"""Pytrees: the concatenation of their leaves, budgets for all or for each, and what takes no part."""

import functools
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops import topk_mag, topk_mag_tree, topk_mask_tree
from ops.pruning import Pruner
from tests.ops import oracles

TREE = {"a": oracles.samples((8, 4), 1), "b": 0.3 * oracles.samples(16, 2), "c": [oracles.samples((2, 3, 2), 3)]}
SINGLE = jax.tree.map(np.float32, TREE)
SIZE = 32 + 16 + 12
RELAXED = [topk_mask_tree, topk_mag_tree]


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def test_a_budget_for_each_leaf(x64):
    """Applies the operator to the leaf as a row, in the leaf's own precision."""
    tree = {"a": TREE["a"], "b": SINGLE["a"].ravel()[::-1]}
    kept = topk_mag_tree(tree, lam=0.5, p=4 / 3, debias=True, k=9, per_leaf=True)
    for leaf, y, tolerance in zip(tree.values(), kept.values(), (1e-12, 2e-6), strict=True):
        assert y.dtype == leaf.dtype
        expected = oracles.pooled(leaf.ravel(), 9, 0.5, 4 / 3, "mag", debias=True).reshape(leaf.shape)
        np.testing.assert_allclose(y, expected, rtol=tolerance, atol=tolerance)
    for share, leaf in zip(
        (9, 4), topk_mag_tree([TREE["a"], TREE["b"]], density=0.3, lam=0, per_leaf=True), strict=True
    ):
        assert np.count_nonzero(leaf) == share


@pytest.mark.parametrize("operator", [*RELAXED, Pruner.__call__, Pruner.harden])
def test_type_hints_keep_the_tree_type(operator):
    hints = typing.get_type_hints((typing.get_overloads(operator) or [operator])[-1])
    assert isinstance(hints["return"], typing.TypeVar)
    assert hints["return"] is next(iter(hints[name] for name in ("params", "scores") if name in hints))


def test_new_k_and_lam_do_not_recompile(caplog):
    calls = [functools.partial(topk_mask_tree, SINGLE, k=k, lam=lam) for k in (3.0, 4.5) for lam in (0.2, 0.3)]
    assert oracles.compilations(caplog, calls) == 1


OTHERS = {
    "act": jax.nn.relu,
    "name": "block",
    "none": None,
    "flag": True,
    "rate": 0.5,
    "step": np.int32(10**6),
    "flags": np.array([True, False]),
    "key": jax.random.key(3),
}


@pytest.mark.parametrize("operator", RELAXED)
def test_only_float_arrays_take_part(operator):
    kept = operator({"others": OTHERS, "params": SINGLE}, k=5)
    np.testing.assert_array_equal(flat(kept["params"]), flat(operator(SINGLE, k=5)))
    masks = operator == topk_mask_tree  # a mask is 1 of what it does not select from
    for name, leaf in OTHERS.items():
        if name in ("flag", "rate", "step", "flags") and masks:
            assert np.all(np.asarray(kept["others"][name]) == 1)
            assert name == "rate" or np.asarray(kept["others"][name]).dtype == np.asarray(leaf).dtype
        elif name in ("flag", "rate"):
            assert kept["others"][name] == leaf
        else:
            assert kept["others"][name] is leaf
    with pytest.raises(ValueError, match=r"^(params|scores) must have at least one floating leaf"):
        operator(OTHERS, k=1)


def test_counts_and_keys_pass_through_jit():
    others = {name: OTHERS[name] for name in ("step", "flags", "key")}
    seen = []

    def keep(tree):
        return topk_mag_tree(tree, density=0.25, lam=0.3, include=lambda path, leaf: seen.append(leaf) is None)

    kept = jax.jit(keep)({"others": others, "params": SINGLE})
    assert len(seen) == len(jax.tree.leaves(SINGLE))
    for name, leaf in others.items():
        assert kept["others"][name].dtype == leaf.dtype
        assert jnp.all(kept["others"][name] == leaf)
    expected = oracles.pooled(flat(SINGLE), 15, 0.3, kind="mag")
    np.testing.assert_allclose(flat(kept["params"]), expected, atol=1e-6)


def test_include_leaves_the_rest_alone():
    kept = topk_mag_tree(
        SINGLE, density=0.25, lam=0.0, include=lambda path, leaf: jax.tree_util.keystr(path) != "['b']"
    )
    assert kept["b"] is SINGLE["b"]
    assert np.count_nonzero(kept["a"]) + np.count_nonzero(kept["c"][0]) == 11
    mask = topk_mask_tree(SINGLE, k=5, lam=0.5, include=lambda path, leaf: leaf.ndim > 1)
    np.testing.assert_array_equal(mask["b"], np.ones(16, np.float32))
    assert np.sum(mask["a"]) + np.sum(mask["c"][0]) == pytest.approx(5)


def test_mixed_dtypes_stay():
    tree = {"a": jnp.arange(4, dtype=jnp.bfloat16), "b": jnp.arange(4, dtype=jnp.float32)}
    kept = topk_mag_tree(tree, density=0.5, lam=0.0)
    assert jax.tree.map(lambda leaf: leaf.dtype, kept) == {"a": jnp.bfloat16, "b": jnp.float32}
    assert np.asarray(kept["a"], np.float32).tolist() == [0, 0, 2, 3]


def test_leaves_compete_as_one_row_in_order(monkeypatch):
    """On a single CPU small leaves are joined where they follow one another, and large ones share what is compiled."""
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    rng, shapes = np.random.default_rng(0), {"a": (8,), "b": (3, 7), "e": (4,), "h": (5, 5)}
    shapes |= dict.fromkeys("cdf", (257, 256))
    of_few_values = {name: rng.integers(-3, 4, shape).astype(np.float32) for name, shape in sorted(shapes.items())}
    entries, k = flat(of_few_values), 1000
    expected = np.zeros_like(entries)
    first = np.argsort(-np.abs(entries), kind="stable")[:k]
    expected[first] = entries[first]
    np.testing.assert_array_equal(flat(topk_mag_tree(of_few_values, k=k, lam=0.0)), expected)

    tree = {name: rng.normal(size=shape).astype(np.float32) for name, shape in sorted(shapes.items())}
    cotangent = rng.normal(size=expected.shape).astype(np.float32)

    @functools.partial(jax.jit, static_argnums=0)
    def with_gradient(operator, tree, cotangents):
        y, pull = jax.vjp(functools.partial(operator, k=k, lam=0.3), tree)
        return y, pull(cotangents)[0]

    at, leaves = 0, {}
    for name, leaf in tree.items():
        leaves[name] = cotangent[at : at + leaf.size].reshape(leaf.shape)
        at += leaf.size
    kept, gradients = with_gradient(topk_mag_tree, tree, leaves)
    of_row, gradient = with_gradient(topk_mag, flat(tree), cotangent)
    np.testing.assert_allclose(flat(kept), of_row, atol=2e-6)
    np.testing.assert_allclose(flat(gradients), gradient, atol=2e-5)
