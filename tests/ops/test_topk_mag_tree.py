"""A pytree is treated as the concatenation of its leaves, wherever they lie."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ops import topk_mag, topk_mag_tree
from tests.ops import oracles

PARAMS = {
    "dense": {"kernel": oracles.samples((8, 16), dtype=np.float32), "bias": 0.1 * oracles.samples(16, 1, np.float32)},
    "scale": np.float32(0.7),
    "head": 2 * oracles.samples((16, 4), 2, np.float32),
}
SIZE = 8 * 16 + 16 + 1 + 64


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


@pytest.mark.parametrize(("p", "debias"), [(2.0, False), (4 / 3, True)])
def test_equals_the_concatenation(p, debias):
    kept = topk_mag_tree(PARAMS, 0.25, lam=0.3, p=p, debias=debias)
    assert jax.tree.map(jnp.shape, kept) == jax.tree.map(jnp.shape, PARAMS)
    expected = topk_mag(flat(PARAMS), SIZE // 4, lam=0.3, p=p, debias=debias)
    np.testing.assert_allclose(flat(kept), expected, atol=1e-6)


def test_lam_0_keeps_exactly_k():
    kept = flat(topk_mag_tree(PARAMS, 0.25, lam=0))
    chosen = oracles.hard(np.abs(flat(PARAMS)), SIZE // 4) == 1
    np.testing.assert_array_equal(kept, np.where(chosen, flat(PARAMS), 0))


@pytest.mark.parametrize(
    ("density", "size", "k"), [(0.1, 70, 7), (0.29, 100, 29), (0.999, 10, 9), (0, 10, 0), (1, 10, 10)]
)
def test_density_is_rounded_down(density, size, k):
    tree = [np.arange(1, size + 1, dtype=np.float32)]
    assert np.count_nonzero(topk_mag_tree(tree, density, lam=0)[0]) == k


def test_include_leaves_the_rest_alone():
    kept = topk_mag_tree(PARAMS, 0.1, lam=0.0, include=lambda path, leaf: jnp.ndim(leaf) > 1)
    assert kept["dense"]["bias"] is PARAMS["dense"]["bias"]
    assert kept["scale"] is PARAMS["scale"]
    assert sum(np.count_nonzero(kept_leaf) for kept_leaf in (kept["dense"]["kernel"], kept["head"])) == 19


def test_include_sees_the_path():
    kept = topk_mag_tree(PARAMS, 0.1, include=lambda path, leaf: jax.tree_util.keystr(path) == "['head']")
    np.testing.assert_array_equal(kept["dense"]["kernel"], PARAMS["dense"]["kernel"])
    assert np.count_nonzero(kept["head"]) < 12


@pytest.mark.parametrize("compiled", [False, True])
def test_counts_flags_and_keys_take_no_part(compiled):
    others = {"step": np.int32(10**6), "flags": np.array([True, False]), "bytes": np.arange(3, dtype=np.uint8)}
    others["key"] = jax.random.key(0)
    seen = []

    def keep(tree):
        return topk_mag_tree(tree, 0.25, lam=0.3, include=lambda path, leaf: seen.append(leaf) is None)

    kept = (jax.jit(keep) if compiled else keep)({"others": others, "params": PARAMS})
    assert len(seen) == len(jax.tree.leaves(PARAMS))
    for name, leaf in others.items():
        assert kept["others"][name].dtype == leaf.dtype
        assert jnp.all(kept["others"][name] == leaf)
        assert compiled or kept["others"][name] is leaf
    alone = topk_mag_tree(PARAMS, 0.25, lam=0.3)
    np.testing.assert_allclose(flat(kept["params"]), flat(alone), atol=1e-6)
    with pytest.raises(ValueError, match=r"^params must have at least one floating leaf"):
        topk_mag_tree(others, 0.5)


def test_mixed_dtypes_stay():
    tree = {"a": jnp.arange(4, dtype=jnp.bfloat16), "b": jnp.arange(4, dtype=jnp.float32)}
    kept = topk_mag_tree(tree, 0.5, lam=0.0)
    assert jax.tree.map(lambda leaf: leaf.dtype, kept) == {"a": jnp.bfloat16, "b": jnp.float32}
    assert np.asarray(kept["a"], np.float32).tolist() == [0, 0, 2, 3]


def test_gradients_equal_those_of_the_concatenation():
    def loss(tree):
        return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(topk_mag_tree(tree, 0.25, lam=0.3, p=4 / 3)))

    gradient = jax.jit(jax.grad(loss))(PARAMS)
    whole = jax.jit(jax.grad(lambda x: jnp.sum(jnp.sin(topk_mag(x, SIZE // 4, lam=0.3, p=4 / 3)))))
    expected = whole(flat(PARAMS))
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(flat(gradient), expected, rtol=1e-4, atol=1e-5)


def test_traced_density_and_lam():
    kept = jax.jit(topk_mag_tree)(PARAMS, 0.25, lam=0.3)
    np.testing.assert_allclose(flat(kept), topk_mag(flat(PARAMS), SIZE // 4, lam=0.3), atol=1e-6)


def specs(tree):
    return jax.tree.map(lambda leaf: PartitionSpec("model") if jnp.ndim(leaf) == 2 else PartitionSpec(), tree)


def test_sharded_leaves_under_jit():
    mesh = Mesh(np.array(jax.devices("cpu")[:8]), ("model",))
    shardings = jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs(PARAMS))
    placed = jax.device_put(PARAMS, shardings)
    kept = jax.jit(lambda tree: topk_mag_tree(tree, 0.25, lam=0.3), out_shardings=shardings)(placed)
    assert len(kept["dense"]["kernel"].sharding.device_set) == 8
    np.testing.assert_allclose(flat(kept), topk_mag(flat(PARAMS), SIZE // 4, lam=0.3), atol=1e-6)


def test_inside_shard_map():
    mesh = Mesh(np.array(jax.devices("cpu")[:8]), ("model",))
    tree = {"a": PARAMS["dense"]["kernel"], "b": PARAMS["head"]}
    spec = PartitionSpec("model")
    kept = jax.jit(
        jax.shard_map(
            lambda tree: topk_mag_tree(tree, 0.25, lam=0.3, axis_name="model"), mesh=mesh, in_specs=spec, out_specs=spec
        )
    )(tree)
    np.testing.assert_allclose(flat(kept), topk_mag(flat(tree), 48, lam=0.3), atol=1e-6)
