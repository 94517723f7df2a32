"""Blocks, channels and runs: what is kept together or among its neighbours, against solvers that know no sizes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from ops import Blocks, Channels, topk_mag_tree
from tests.ops import oracles

MATRIX = oracles.samples((6, 7), 4)


def test_solves_group_k_support_norm_problem(x64):
    """A generic solver over all entries, told neither that groups keep their direction nor what their sizes are."""
    x, k, lam, p = oracles.samples((4, 3), 6), 1.3, 0.4, 1.5
    members = np.array([[0, 0, 1], [0, 0, 1], [2, 2, 3], [2, 2, 3]])
    expected = oracles.generic(x.ravel(), k, lam, p, "magnitude", members.ravel()).reshape(4, 3)
    y = np.asarray(topk_mag_tree({"w": x}, k=k, lam=lam, p=p, groups=Blocks((2, 2)))["w"])
    np.testing.assert_allclose(y, expected, atol=1e-6)
    assert np.count_nonzero(y) == 6  # of two groups


def test_second_derivatives_of_zero_groups():
    """The first ones, and those of groups of 1e-30, are tried by random problems."""

    def loss(w, k, lam):
        return jnp.sum(jnp.sin(3 * topk_mag_tree({"w": w}, k=k, lam=lam, debias=True, groups=Channels(-1))["w"]))

    first = jax.grad(loss, (0, 1, 2))
    second = jax.jit(lambda *at: jax.jvp(lambda w: first(w, *at[1:]), (at[0],), (jnp.ones_like(at[0]),)))
    w = MATRIX.astype(np.float32)
    w[:, 2:4] = 0
    for k in (3.0, 0.0, 7.0):
        assert all(np.isfinite(part).all() for part in jax.tree.leaves(second(w, np.float32(k), np.float32(0.5))))


def test_groups_of_several_leaves_and_axes():
    tree = {"conv": oracles.samples((3, 3, 4, 6), 1, np.float32), "dense": oracles.samples((10, 6), 2, np.float32)}
    sizes = np.concatenate([np.sqrt(np.mean(leaf**2, axis=tuple(range(leaf.ndim - 1)))) for leaf in tree.values()])
    wanted = oracles.pooled(sizes, 4, 0.3, kind="mag") / sizes
    kept = topk_mag_tree(tree, density=1 / 3, lam=0.3, groups=Channels())
    np.testing.assert_allclose(kept["conv"], tree["conv"] * wanted[:6], atol=1e-6)
    np.testing.assert_allclose(kept["dense"], tree["dense"] * wanted[6:], atol=1e-6)
    filters = np.asarray(topk_mag_tree({"conv": tree["conv"]}, k=5, lam=0, groups=Channels((-2, -1)))["conv"])
    left = np.any(filters != 0, axis=(0, 1))
    energy = np.sum(tree["conv"] ** 2, axis=(0, 1))
    np.testing.assert_array_equal(left, energy >= np.sort(energy, axis=None)[-5])
    stacked = np.stack([MATRIX, 2 * MATRIX]).astype(np.float32)  # tiles lie at one index of the axes before
    kept = np.asarray(topk_mag_tree({"w": stacked}, k=4, lam=0, groups=Blocks((3, 4)))["w"])
    tiles = [kept[i, 3 * a : 3 * a + 3, 4 * b : 4 * b + 4] for i in (0, 1) for a in (0, 1) for b in (0, 1)]
    assert np.count_nonzero([np.any(tile) for tile in tiles]) == 4


def test_on_meshes_they_are_as_on_one_device():
    groups = Blocks((2, 3))
    mesh = Mesh(np.array(jax.devices("cpu")[:2]), ("model",), axis_types=(AxisType.Explicit,))
    spec = PartitionSpec(None, "model")
    x = oracles.samples((6, 6), 8, np.float32)

    def function(w, axis_name=None):
        return topk_mag_tree({"w": w}, density=0.5, lam=0.4, groups=groups, axis_name=axis_name)["w"]

    energy = np.sqrt(np.mean(x.reshape(3, 2, 2, 3) ** 2, axis=(1, 3)))
    left = oracles.pooled(energy.ravel(), 3, 0.4, kind="mag").reshape(3, 2) / energy
    expected = x * np.repeat(np.repeat(left, 2, axis=0), 3, axis=1)
    with jax.set_mesh(mesh):
        placed = jax.device_put(x, NamedSharding(mesh, spec))
        found = jax.jit(function)(placed)
        assert jax.typeof(found) == jax.typeof(placed)
        np.testing.assert_allclose(found, expected, atol=1e-6)
        inside = jax.shard_map(functools.partial(function, axis_name="model"), in_specs=spec, out_specs=spec)
        np.testing.assert_allclose(jax.jit(inside)(placed), expected, atol=1e-6)
