"""Masks and hard operators of pytrees, and budgets by number or for each leaf."""

import functools
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ops import (
    hard_topk_mag_tree,
    hard_topk_mask,
    hard_topk_mask_tree,
    topk_mag,
    topk_mag_tree,
    topk_mask_tree,
)
from ops.pruning import Pruner
from tests.ops import oracles

TREE = {"a": oracles.samples((8, 4), 1), "b": 0.3 * oracles.samples(16, 2), "c": [oracles.samples((2, 3, 2), 3)]}
SINGLE = jax.tree.map(np.float32, TREE)
SIZE = 32 + 16 + 12
RELAXED = [topk_mask_tree, topk_mag_tree]
HARD = [hard_topk_mask_tree, hard_topk_mag_tree]


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def unflat(vector):
    first, second, third = jnp.split(vector, [32, 48])
    return {"a": first.reshape(8, 4), "b": second, "c": [third.reshape(2, 3, 2)]}


@pytest.mark.parametrize("p", [2.0, 4 / 3])
@pytest.mark.parametrize(("operator", "kind"), [(topk_mask_tree, "mask"), (topk_mag_tree, "mag")])
def test_relaxed_trees_are_the_oracle_of_the_concatenation(operator, kind, p, x64):
    for k, lam in ((15, 0.4), (7.3, 2.0)):
        found = flat(operator(TREE, k=k, lam=lam, p=p))
        np.testing.assert_allclose(found, oracles.pooled(flat(TREE), k, lam, p, kind), atol=1e-12)
    np.testing.assert_array_equal(flat(operator(TREE, 0.25, lam=0.4)), flat(operator(TREE, k=15, lam=0.4)))


@pytest.mark.parametrize("operator", RELAXED)
def test_derivatives_in_entries_and_number_and_strength(operator, x64):
    def function(x, k, lam):
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(operator(unflat(x), k=k, lam=lam))])

    oracles.check_derivatives(function, (flat(TREE), 14.5, 1.3))


@pytest.mark.parametrize("operator", HARD)
def test_hard_trees_are_the_sorted_concatenation(operator):
    masks = operator == hard_topk_mask_tree
    tied = jax.tree.map(np.round, SINGLE)  # among equals the first come first, over leaves too
    for k in (0, 1, 20, SIZE):
        x = flat(tied)
        chosen = oracles.hard(x if masks else np.abs(x), k)
        np.testing.assert_array_equal(flat(operator(tied, k=k)), chosen if masks else chosen * x)

    @jax.jit
    @jax.grad
    def gradient_of(tree):
        return sum(jnp.sum(3 * leaf) for leaf in jax.tree.leaves(operator(tree, k=20)))

    gradient = gradient_of(SINGLE)
    expected = 0.0 if masks else 3 * oracles.hard(np.abs(flat(SINGLE)), 20)
    np.testing.assert_array_equal(flat(gradient), np.broadcast_to(expected, SIZE))


PER_LEAF = [
    (
        functools.partial(topk_mag_tree, lam=0.5, p=4 / 3, debias=True, k=9),
        functools.partial(topk_mag, lam=0.5, p=4 / 3, debias=True, k=9),
    ),
    (functools.partial(hard_topk_mask_tree, density=0.3), functools.partial(hard_topk_mask, k=9)),
]


@pytest.mark.parametrize(("of_tree", "of_row"), PER_LEAF)
def test_a_budget_for_each_leaf(of_tree, of_row):
    """To the last bit what the operator makes of the leaf as a row, in the leaf's own precision."""
    tree = {"a": SINGLE["a"], "b": SINGLE["a"].ravel()[::-1]}
    for y, leaf in zip(jax.tree.leaves(of_tree(tree, per_leaf=True)), tree.values(), strict=True):
        np.testing.assert_array_equal(y, of_row(leaf.ravel()).reshape(leaf.shape))
    with jax.enable_x64(True):
        kept = of_tree({"a": TREE["a"], "b": tree["b"]}, per_leaf=True)
        assert jax.tree.map(lambda leaf: leaf.dtype, kept) == {"a": np.float64, "b": np.float32}
        np.testing.assert_array_equal(kept["b"], of_row(tree["b"]))


@pytest.mark.parametrize("per_leaf", [False, True])
def test_a_share_of_millions_is_rounded_down_once(per_leaf):
    """0.3 times 3,000,003 is 900,000.9, which float32 has as 900,001."""
    tree = {"a": jnp.arange(3_000_003, dtype=jnp.float32)} | ({"b": jnp.arange(10.0)} if per_leaf else {})
    operator = functools.partial(hard_topk_mask_tree, density=0.3, per_leaf=per_leaf)
    for kept in (operator(tree), jax.jit(operator)(tree)):
        assert np.sum(kept["a"], dtype=int) == 900_000
        assert not per_leaf or np.sum(kept["b"]) == 3


@pytest.mark.parametrize("operator", [functools.partial(topk_mask_tree, lam=0.5), hard_topk_mask_tree])
def test_a_mask_is_1_where_nothing_is_selected_among(operator):
    others = {"step": np.int32(7), "flags": np.array([True, False]), "key": jax.random.key(3)}
    found = operator(others | SINGLE, k=5, include=lambda path, leaf: leaf.ndim > 1)
    assert found["key"] is others["key"]
    assert found["step"].dtype == np.int32
    assert found["step"] == 1
    assert found["flags"].tolist() == [True, True]
    np.testing.assert_array_equal(found["b"], np.ones(16, np.float32))
    assert np.sum(found["a"]) + np.sum(found["c"][0]) == pytest.approx(5)
    pruned = jax.tree.map(jnp.multiply, SINGLE, {name: found[name] for name in SINGLE})
    np.testing.assert_array_equal(pruned["b"], SINGLE["b"])


@pytest.mark.parametrize("per_leaf", [False, True])
def test_leaves_over_devices(per_leaf):
    mesh = Mesh(np.array(jax.devices("cpu")[:4]), ("model",))
    spec = PartitionSpec("model")
    tree = {"a": SINGLE["a"], "b": SINGLE["b"]}
    expected = topk_mask_tree(tree, 0.25, lam=0.3, per_leaf=per_leaf)
    placed = jax.device_put(tree, NamedSharding(mesh, spec))

    def function(tree, axis_name=None):
        return topk_mask_tree(tree, 0.25, lam=0.3, per_leaf=per_leaf, axis_name=axis_name)

    inside = jax.shard_map(functools.partial(function, axis_name="model"), mesh=mesh, in_specs=spec, out_specs=spec)
    for found in (jax.jit(function)(placed), jax.jit(inside)(tree)):
        np.testing.assert_allclose(flat(found), flat(expected), atol=1e-6)


@pytest.mark.parametrize("operator", [*RELAXED, *HARD])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"^exactly one of density and k must be given, got density=None, k=None$"),
        ({"density": 0.1, "k": 3}, r"^exactly one of density and k .*density=0\.1, k=3$"),
        ({"density": 1.5}, r"^density must be in \[0, 1\], got 1\.5$"),
        ({"k": 61}, r"^k must be in \[0, 60\], the number of entries, got 61$"),
        (
            {"k": 13, "per_leaf": True},
            r"^k must be in \[0, 12\], the number of entries of the smallest leaf .* got 13$",
        ),
        ({"k": [1, 2]}, r"^k must be a scalar, got shape \(2,\)$"),
        ({"k": 3, "include": lambda path, leaf: False}, r"must have at least one floating leaf"),
    ],
)
def test_what_cannot_be_is_named(operator, options, message):
    with pytest.raises(ValueError, match=message):
        operator(SINGLE, **options)


@pytest.mark.parametrize("operator", HARD)
def test_hard_ones_keep_a_whole_number(operator):
    with pytest.raises(ValueError, match=r"^k must be a whole number, got 2\.5$"):
        operator(SINGLE, k=2.5)
    with pytest.raises(ValueError, match=r"^(scores|params)\['a'\] must be"):
        operator({"a": 1j * SINGLE["a"]}, k=1)


@pytest.mark.parametrize("operator", [*RELAXED, *HARD])
def test_leaves_that_are_no_arrays_are_left_alone(operator):
    others = {"act": jax.nn.relu, "name": "block", "none": None, "flag": True, "depth": 3, "rate": 0.5}
    kept = operator({"a": SINGLE["a"], **others}, k=5)
    np.testing.assert_array_equal(kept["a"], operator({"a": SINGLE["a"]}, k=5)["a"])
    for name in ("act", "name", "none"):
        assert kept[name] is others[name]
    for name in ("flag", "depth", "rate"):  # a mask is 1 of what it is not of
        assert np.asarray(kept[name]) == (1 if operator in (topk_mask_tree, hard_topk_mask_tree) else others[name])


@pytest.mark.parametrize("operator", [*RELAXED, *HARD, Pruner.__call__, Pruner.harden])
def test_type_checkers_keep_the_type_of_a_tree(operator):
    hints = typing.get_type_hints(operator)
    assert isinstance(hints["return"], typing.TypeVar)
    assert hints["return"] is next(iter(hints[name] for name in ("params", "scores") if name in hints))


def test_other_numbers_and_strengths_compile_nothing(caplog):
    calls = [functools.partial(topk_mask_tree, SINGLE, k=k, lam=lam) for k in (3.0, 4.5) for lam in (0.2, 0.3)]
    assert oracles.compilations(caplog, calls) == 1
