"""Masks of learned scores: exact budgets, derivatives, and the same selection if the scores are magnitudes."""

import functools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from ops import NM, Blocks, Channels
from ops.pruning import Pruner, Scored, share_of_nonzeros
from tests.ops import oracles

N = 8 * 12 + 4 * 6
KINDS = {  # by name the options of the pruner, and the largest budget
    "whole": ({}, N),
    "per_leaf": ({"per_leaf": True}, 24),
    "n:m": ({"groups": NM(4)}, 4),
    "blocks": ({"groups": Blocks((4, 2))}, 15),
}
WEIGHTS = 1 + np.abs(oracles.samples(N, 1, np.float32))


def split(x):
    return {"u": x[:96].reshape(8, 12), "w": x[96:].reshape(4, 6)}


def joined(tree):
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def expected_masks(kind, scores, k):
    """The hard masks of both matrices as one vector, by a sort of what competes."""
    if kind == "whole":
        return oracles.hard(joined(scores), k)
    if kind == "per_leaf":
        return joined([oracles.hard(leaf.ravel(), k) for leaf in scores.values()])
    if kind == "n:m":
        runs = [leaf.reshape(-1, 4, leaf.shape[1]) for leaf in scores.values()]
        return joined([np.apply_along_axis(oracles.hard, 1, leaf, k) for leaf in runs])
    tiles = [leaf.reshape(-1, 4, leaf.shape[1] // 2, 2).mean(axis=(1, 3)) for leaf in scores.values()]
    mask, first = oracles.hard(joined(tiles), k), tiles[0].size
    masks = mask[:first].reshape(tiles[0].shape), mask[first:].reshape(tiles[1].shape)
    return joined([np.kron(one, np.ones((4, 2))) for one in masks])


@functools.cache
def selection(kind):
    """Compiles, for any budget, the weights that a pruner selects by scores, in training or at the end."""
    pruner = Pruner(k=lambda step: step, lam=0.5, straight_through=True, warn=False, **KINDS[kind][0])
    select = pruner if kind == "whole" else pruner.harden
    return jax.jit(lambda scores, k: joined(select(Scored(split(WEIGHTS), scores), k)))


# Scores are multiples of 1/4, so that many tie.
@hypothesis.given(st.sampled_from(sorted(KINDS)), st.integers(0, 2**16), st.floats(0, 1))
def test_scores_keep_exactly_the_budget(kind, seed, share):
    scores = split(np.random.default_rng(seed).integers(-6, 7, N).astype(np.float32) / 4)
    k = round(share * KINDS[kind][1])
    found = selection(kind)(scores, float(k))
    np.testing.assert_array_equal(found, WEIGHTS * expected_masks(kind, scores, k))


def test_magnitudes_as_scores_change_nothing():
    params = {"w": oracles.samples((4, 6), 2, np.float32), "bias": np.ones(3, np.float32), "step": np.int32(3)}
    params["layer"] = {"kernel": oracles.samples((3, 8, 4), 3, np.float32), "bias": np.ones((3, 4), np.float32)}
    pruner = Pruner(k=3, lam=0.1, groups=NM(4))  # the other budgets differ in the selection alone, as above

    @jax.jit
    def pruned(params):
        scored = pruner.scored(params)
        assert scored.scores["layer"]["bias"] is scored.scores["step"] is None
        return pruner.harden(params), pruner.harden(scored)

    jax.tree.map(np.testing.assert_array_equal, *pruned(params))


def test_masks_and_slopes_match_the_oracle():
    weights, scores, slopes = (oracles.samples(N, seed) for seed in (4, 5, 6))

    def gradients(weights, scores, through):
        """Of the weighted sum of what a pruner gives, with that itself."""

        def total(weights, scores):
            y = joined(Pruner(k=40, lam=0.7, straight_through=through)(Scored(split(weights), split(scores))))
            return jnp.vdot(slopes, y), y

        return jax.grad(total, (0, 1), has_aux=True)(weights, scores)

    expected = oracles.differentiated(scores[None], 40, 0.7, cotangent=(slopes * weights)[None])
    relaxed, hard = expected["value"][0], oracles.hard(scores, 40)
    with jax.enable_x64(True):
        both = jax.device_get(jax.jit(lambda *at: [gradients(*at, way) for way in (False, True)])(weights, scores))
    for ((in_weights, in_scores), found), mask in zip(both, (relaxed, hard), strict=True):
        np.testing.assert_allclose(found, weights * mask, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(in_weights, slopes * relaxed, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(in_scores, expected["x"][0], rtol=1e-9, atol=1e-12)


def test_training_scores_finds_the_mask():
    inputs = oracles.samples((256, 16), 7, np.float32)
    params = {"kernel": 1 + oracles.samples((16, 4), 8, np.float32) ** 2, "bias": np.zeros(4, np.float32)}
    wanted = params["kernel"] * (np.arange(16)[:, None] % 4 // 2 == 0)  # the first two of every four
    pruner = Pruner(k=2, lam=lambda step: 20.0 * 0.99**step, groups=NM(4), straight_through=True)
    rates = {"weights": optax.set_to_zero(), "scores": optax.adam(0.1)}
    optimizer = optax.multi_transform(rates, Scored("weights", "scores"))

    def loss(params, step):
        weights = pruner(params, step)
        return jnp.mean((inputs @ (weights["kernel"] - wanted)) ** 2), jnp.count_nonzero(weights["kernel"])

    def update(carry, step):
        params, state = carry
        (_, kept), gradient = jax.value_and_grad(loss, has_aux=True)(params, step)
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), kept

    start = pruner.scored(jax.tree.map(jnp.asarray, params))
    with jax.numpy_dtype_promotion("standard"):  # for optax
        (trained, _), kept = jax.lax.scan(update, (start, optimizer.init(start)), jnp.arange(150.0))
    assert set(np.asarray(kept).tolist()) == {32}
    jax.tree.map(np.testing.assert_array_equal, trained.weights, params)
    assert np.any(pruner.harden(start)["kernel"] != wanted)
    np.testing.assert_array_equal(pruner.harden(trained)["kernel"], wanted)


def test_absent_scores_take_no_part():
    pruner, weights = Pruner(k=30, lam=0.5), split(WEIGHTS.astype(jnp.bfloat16))
    first = jax.eval_shape(pruner.scored, weights).scores
    assert {leaf.dtype for leaf in jax.tree.leaves(first)} == {np.dtype(np.float32)}
    scores = oracles.samples(N, 9, np.float32)
    scores[::3] = -np.inf

    def total(scores):
        y = joined(pruner(Scored(weights, split(scores))))
        return y.sum(), y

    slopes, found = jax.device_get(jax.jit(jax.grad(total, has_aux=True))(scores))
    expected = WEIGHTS.astype(jnp.bfloat16).astype(float) * oracles.pooled(scores, 30, 0.5)
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.float64(found), expected, rtol=2.0**-8, atol=1e-5)
    assert np.isfinite(slopes).all()
    assert not slopes[::3].any()


def test_scores_that_do_not_fit_are_named():
    pruner, scores = Pruner(k=3, lam=0.1), split(np.ones(N, np.float32))
    for shown, leaf in {"None": None, r"float32 of shape \(12, 8\)": scores["u"].T}.items():
        with pytest.raises(ValueError, match=rf"^scores must have floats of shape \(8, 12\) at 'u', got {shown}$"):
            pruner(Scored(split(WEIGHTS), scores | {"u": leaf}))
    pruner(Scored(split(WEIGHTS), scores | {"bias": "not used"}))


def test_scores_may_be_of_a_part_of_a_tree():
    pruner, scores = Pruner(k=30, lam=0.5), split(oracles.samples(N, 9, np.float32))
    scored = Scored(split(WEIGHTS), scores)
    tree = {"params": [scored], "statistics": {"mean": np.ones((2, 2), np.float32)}, "step": 3}
    for function in (pruner, pruner.harden):
        found = function(tree)
        jax.tree.map(np.testing.assert_array_equal, found["params"], [function(scored)])
        assert found["statistics"]["mean"] is tree["statistics"]["mean"]
    assert "30 of 120" in pruner.describe(tree)
    with pytest.raises(ValueError, match=r"^scores .* \(4, 2\) at 'head/kernel', got None$"):
        pruner(tree | {"head": {"kernel": np.ones((4, 2), np.float32)}})


def test_scores_are_no_weights():
    pruner = Pruner(k=30, lam=0.5)
    scored = pruner.scored({"kernel": np.eye(8, dtype=np.float32)})
    scored = scored._replace(scores={"kernel": np.ones((8, 8), np.float32)})
    assert share_of_nonzeros(scored) == share_of_nonzeros({"part": scored}, pruner.prunes) == 1 / 8
    for params in (scored, {"part": scored}):
        with pytest.raises(ValueError, match=r"^params .* Scored$"):
            pruner.scored(params)


@pytest.mark.parametrize("groups", [None, Channels()])
def test_pruned_infinite_weights_are_0(groups):
    weights = {"kernel": np.float32([[np.inf, 1, 2], [3, 4, -np.inf]])}
    scores = {"kernel": np.float32([[0, 5, 0], [0, 5, 0]])}
    pruner, expected = Pruner(density=1 / 3, lam=0.1, groups=groups), [[0, 1, 0], [0, 4, 0]]
    for function in (pruner, pruner.harden):
        np.testing.assert_array_equal(function(Scored(weights, scores))["kernel"], expected)
    hard = Pruner(k=1, lam=0.0, groups=groups).harden(weights)["kernel"]
    assert np.asarray(hard)[:, 1:].tolist() == [[0, 0], [0, 0]]  # the first of several infinite ones is kept


@pytest.mark.parametrize("groups", [Blocks((4, 2)), Channels(), NM(4)], ids=lambda groups: type(groups).__name__)
def test_first_scores_over_an_explicit_mesh(groups):
    mesh = Mesh(np.array(jax.devices("cpu")[:4]).reshape(2, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    kernel, pruner = oracles.samples((8, 12), 1, np.float32), Pruner(k=2, lam=0.1, groups=groups)
    expected = pruner.scored({"kernel": kernel}).scores["kernel"]
    with jax.set_mesh(mesh):
        placed = jax.device_put({"kernel": kernel}, NamedSharding(mesh, PartitionSpec("data", "model")))
        for found in (pruner.scored(placed), jax.jit(pruner.scored)(placed)):
            assert jax.typeof(found.scores["kernel"]) == jax.typeof(placed["kernel"])
            np.testing.assert_allclose(found.scores["kernel"], expected, rtol=1e-6)
