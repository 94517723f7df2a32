"""A pruner is the operator of the tree with what its schedules say, and lets a network find its weights."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.experimental.sparse import BCOO
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from ops import NM, Channels, topk_mag_tree
from ops.pruning import Pruner, matching, matrices, share_of_nonzeros
from tests.ops import oracles

PARAMS = {
    "body": {"kernel": oracles.samples((8, 16), 1, np.float32), "bias": oracles.samples(16, 2, np.float32)},
    "head": {"kernel": 2 * oracles.samples((16, 4), 3, np.float32)},
    "step": np.int32(3),
}
KERNELS = np.concatenate([PARAMS[name]["kernel"].ravel() for name in ("body", "head")])


def falling(step):
    return 8.0 * 0.5**step


def assert_same(found, expected):
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_schedules_are_evaluated_at_the_step():
    options = {"per_leaf": True, "p": 4 / 3}
    pruner = Pruner(k=lambda step: 40.0 - 10 * step, lam=falling, **options)
    expected = topk_mag_tree(PARAMS, lam=falling(3), debias=True, include=matrices, k=10.0, **options)
    found = pruner(PARAMS, 3)
    assert_same(found, expected)
    assert found["body"]["bias"] is PARAMS["body"]["bias"]
    assert found["step"] is PARAMS["step"]
    traced = jax.eval_shape(pruner, PARAMS, jnp.float32(3))  # schedules of a step that is not known
    assert jax.tree.map(jnp.shape, traced) == jax.tree.map(jnp.shape, expected)
    with pytest.raises(ValueError, match=r"^step must be given where lam is a schedule, got None$"):
        pruner(PARAMS)


def test_include_and_exclude_choose_leaves():
    pruner = Pruner(density=0.25, lam=1e-3, include=matching("kernel$"), exclude=matching("^head/"))
    found = pruner(PARAMS)
    assert np.count_nonzero(found["body"]["kernel"]) == 32
    assert found["head"]["kernel"] is PARAMS["head"]["kernel"]
    assert share_of_nonzeros(found, pruner.prunes) == 0.25
    assert share_of_nonzeros(found) == np.float32((32 + 64) / (128 + 64))


def test_straight_through_has_relaxed_slopes():
    through = Pruner(density=0.25, lam=0.7, straight_through=True)

    @jax.jit
    def with_gradient(params):
        def loss(params):
            found = through({**PARAMS, **params})
            return sum(jnp.sum(3 * found[name]["kernel"]) for name in ("body", "head")), found

        return jax.grad(loss, has_aux=True)(params)

    slopes, found = with_gradient({name: PARAMS[name] for name in ("body", "head")})
    kept = np.concatenate([np.ravel(found[name]["kernel"]) for name in ("body", "head")])
    np.testing.assert_array_equal(kept, KERNELS * oracles.hard(np.abs(KERNELS), 48))
    expected = oracles.differentiated(KERNELS[None], 48, 0.7, kind="mag", debias=True, cotangent=3.0)["x"][0]
    slopes = np.concatenate([np.ravel(slopes[name]["kernel"]) for name in ("body", "head")])
    np.testing.assert_allclose(slopes, expected, rtol=1e-4, atol=1e-4)
    assert np.abs(slopes - 3.0 * (kept != 0)).max() > 0.1


def test_harden_keeps_exactly_k_unchanged():
    pruner = Pruner(k=lambda step: 60.5 - step, lam=falling)
    hard = pruner.harden(PARAMS, 20)
    kept = np.concatenate([np.ravel(hard[name]["kernel"]) for name in ("body", "head")])
    np.testing.assert_array_equal(kept, KERNELS * oracles.hard(np.abs(KERNELS), 40))
    assert hard["body"]["bias"] is PARAMS["body"]["bias"]
    with pytest.raises(ValueError, match=r"^step must be given where k is a schedule, got None$"):
        pruner.harden(PARAMS)


LAYERS = [np.float32(10.0**-i) * oracles.samples((8, 4), 10 + i, np.float32) for i in range(4)]
SCANNED = {
    "blocks": {
        "dense": {"kernel": np.stack(LAYERS), "bias": np.ones((4, 4), np.float32)},
        "attention": {"kernel": np.ones((4, 8, 2, 4), np.float32), "bias": np.ones((4, 2, 4), np.float32)},
        "norm": {"scale": np.ones((4, 8), np.float32)},
    },
    "head": {"kernel": oracles.samples((8, 3), 9, np.float32)},
}


PRUNED = [("dense/kernel", (8, 4)), ("dense/kernel", (1, 4)), ("query/kernel", (8, 2, 4)), ("lora_b", (2, 4))]
PRUNED += [("embed/embedding", (100, 8)), ("linear/w", (8, 4)), ("head", (8, 4)), ("", (8, 4))]
# Biases of heads, of Equinox and Haiku, scales that are scanned, and tokens.
NOT_PRUNED = [("dense/bias", (4,)), ("query/bias", (2, 4)), ("conv/bias", (3, 1, 1)), ("linear/b", (6, 4))]
NOT_PRUNED += [("norm/scale", (6, 8)), ("LayerNorm_0/weight", (6, 8)), ("cls", (1, 1, 8)), ("probe", (1, 1, 8))]
NOT_PRUNED += [("pos_embedding", (1, 16, 8)), ("", (1, 4))]


def test_matrices_are_told_by_name_and_shape():
    value, place = jax.tree_util.GetAttrKey("value"), jax.tree_util.SequenceKey(0)
    for pruned, leaves in ((True, PRUNED), (False, NOT_PRUNED)):
        for path, shape in leaves:
            leaf, names = np.ones(shape, np.float32), path.split("/") if path else []
            keys = [tuple(map(kind, names)) for kind in (jax.tree_util.DictKey, jax.tree_util.GetAttrKey)]
            for one in (*keys, (*keys[0], value), (*keys[0], place)) if names else keys:
                assert matrices(one, leaf) is pruned, (path, shape)
                assert Pruner(k=1, lam=0.1).prunes(one, leaf) is pruned


@pytest.mark.parametrize(
    ("groups", "amount", "per_leaf"), [(None, {"density": 0.2}, True), (Channels(0), {"k": 3}, False)]
)
def test_scanned_layers_count_as_matrices(groups, amount, per_leaf):
    options = {"groups": groups, "per_leaf": per_leaf, "lam": 0.3} | amount
    if per_leaf:
        pruner = Pruner(**options, exclude=matching("head|attention"))
        rows = np.stack([layer.ravel() for layer in LAYERS])
        magnitudes = functools.partial(oracles.pooled, kind="mag", debias=True)
        kept = oracles.by_rows(magnitudes, rows, 6, 0.3).reshape(4, 8, 4)
        left = np.stack([row * oracles.hard(np.abs(row), 6) for row in rows]).reshape(4, 8, 4)
    else:
        pruner = Pruner(**options, include=matching("dense/kernel"), stacked=matching("^blocks/"))
        sizes = np.sqrt(np.mean(np.square(LAYERS), axis=2)).ravel()
        shares = oracles.pooled(sizes, 3, 0.3, kind="mag", debias=True) / sizes, oracles.hard(sizes, 3)
        kept, left = (LAYERS * share.reshape(4, 8, 1) for share in shares)
    for function, expected in ((pruner, kept), (jax.jit(pruner.harden), left)):
        found = function(SCANNED)
        np.testing.assert_allclose(found["blocks"]["dense"]["kernel"], expected, 1e-5)
        for name in ("norm", "attention"):
            assert_same(found["blocks"][name], SCANNED["blocks"][name])
    if per_leaf:
        whole = Pruner(**options, exclude=matching("head"), stacked=lambda path, leaf: False)
        assert "layers" not in whole.describe(jax.eval_shape(lambda: SCANNED))


@pytest.mark.parametrize("stacked", [None, matching("^layers/")], ids=["found", "selected"])
def test_layers_scanned_along_second_axis(stacked):
    layers = np.stack(LAYERS, axis=1)
    mlp = {"kernel": layers, "bias": np.zeros((4, 4), np.float32)}
    tree = {"layers": {"norm": {"scale": np.ones((8, 4), np.float32)}, "mlp": mlp}, "head": SCANNED["head"]}
    options = {"lam": 0.3, "k": 2, "exclude": matching("head"), "stacked": stacked, "stacked_axis": 1}

    pruner, runs = Pruner(groups=NM(4), **options), np.abs(layers).reshape(2, 4, 4, 4)
    kept = (runs >= np.sort(runs, axis=1)[:, 2:3]).reshape(layers.shape)
    assert_same(pruner.harden(tree)["layers"]["mlp"]["kernel"], kept * layers)

    pruner, energy = Pruner(groups=Channels(), per_leaf=True, **options), np.sum(layers**2, axis=0)
    kept = energy >= np.sort(energy, axis=-1)[:, 2:3]
    for params in (tree, pruner.scored(tree)):
        assert_same(pruner.harden(params)["layers"]["mlp"]["kernel"], kept * layers)
    assert "(8 in, 4 layers, 4 out)" in pruner.describe(tree)
    assert "in each of 4 layers, keeps 16\n" in pruner.describe(tree)
    attention = {"query": {"kernel": np.ones((8, 2, 2)), "bias": np.zeros((2, 2))}}  # no layers, but heads
    attention = jax.eval_shape(lambda: attention)
    assert "layers" not in Pruner(density=1.0, lam=0.1).describe(attention)


def test_what_is_pruned_is_described():
    pruner = Pruner(density=0.25, lam=falling, exclude=matching("head"))
    lines = pruner.describe(PARAMS).splitlines()
    assert lines[1].split() == ["body/kernel", "(8,", "16)", "pruned,", "keeps", "32"]
    assert all("left alone" in line for line in (lines[0], lines[2], lines[3]))
    assert "32 of 128" in lines[4]
    shapes = jax.eval_shape(lambda: SCANNED)
    text = Pruner(k=lambda step: 2 + step, lam=0.1, per_leaf=True).describe(shapes, 3)
    assert "blocks/dense/kernel      (4, 8, 4)     pruned to 5 of 32 entries in each of 4 layers\n" in text
    text = Pruner(k=2, lam=0.1, groups=NM(4)).describe({"kernel": shapes["head"]["kernel"]})
    assert text == "kernel  (8 in, 3 out)  pruned along inputs to 2 of 4 in a row"


def test_warns_of_leaves_that_keep_nothing():
    tree = {"dense": SCANNED["blocks"]["dense"], "head": SCANNED["head"], "last": {"kernel": np.zeros((3, 2))}}
    message = r"^nothing but zeros is kept of 'dense/kernel' \(layers 1, 2, 3\), 'last/kernel'; per_leaf=True,"
    for function in (Pruner(k=40, lam=0.1).harden, Pruner(k=40, lam=0.1).describe):
        with pytest.warns(UserWarning, match=message):
            function(tree)
    jax.eval_shape(Pruner(k=40, lam=0.1).harden, tree)


def test_training_warns_once_of_empty_leaves(recwarn):
    """Also in a loop, under remat, for several networks at once, and on a mesh."""
    pruner = Pruner(density=0.1, lam=0.0, straight_through=True)
    params = {"large": {"kernel": 10 + jnp.ones((8, 4))}, "small": {"kernel": jnp.ones((8, 4))}}

    @jax.jit
    def train(params):
        def loss(params, step):
            return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(jax.checkpoint(pruner)(params, step)))

        slopes = jax.vmap(jax.grad(loss), (None, 0))
        return jax.lax.scan(lambda params, step: (params, slopes(params, step)), params, jnp.zeros((3, 2)))

    mesh = Mesh(np.array(jax.devices("cpu")[:2]), ("data",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        params = jax.device_put(params, NamedSharding(mesh, PartitionSpec("data")))
        for _ in range(2):
            jax.block_until_ready(train(params))
        jax.effects_barrier()
    (warning,) = recwarn
    assert "'small/kernel'" in str(warning.message)
    assert "'large/kernel'" not in str(warning.message)


@pytest.mark.parametrize("name", ["include", "exclude", "stacked"])
def test_unmatched_pattern_is_refused(name):
    pruner = Pruner(k=1, lam=0.1, **{name: matching("kernal$")})
    message = rf"^{name} must match a floating leaf of params, got matching\('kernal\$'\); there are 'body/bias', "
    for function in (pruner, pruner.harden, pruner.describe):
        with pytest.raises(ValueError, match=message):
            function(PARAMS)


def test_non_arrays_are_left_alone():
    others = {"activation": jax.nn.relu, "name": "block", "rate": 0.5, "norm": None, "depth": 3}
    pruner, model = Pruner(density=0.25, lam=falling), {"weight": PARAMS["body"]["kernel"], **others}
    for found in (pruner.harden(model), pruner(model, 0), pruner.harden(model, format="bcoo")):
        assert found["weight"] is not model["weight"]
        assert {name: found[name] for name in others} == others
    assert share_of_nonzeros(pruner.harden(model)) == 0.25
    assert "\nname                 left alone: no array of floats\n" in pruner.describe(model)


def test_sharded_weights_become_bcoo():
    mesh = Mesh(np.array(jax.devices("cpu")[:4]).reshape(2, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    pruner = Pruner(density=0.25, lam=0.1)
    kernel = PARAMS["body"]["kernel"]
    placed = jax.device_put({"kernel": kernel}, NamedSharding(mesh, PartitionSpec("data", "model")))
    expected = kernel * oracles.hard(np.abs(kernel).ravel(), 32).reshape(kernel.shape)
    with jax.set_mesh(mesh):
        found = pruner.harden(placed, format="bcoo")["kernel"]
        assert isinstance(found, BCOO)
        assert found.nse == 32
        dense = np.zeros_like(kernel)
        dense[tuple(np.asarray(found.indices).T)] = found.data
        np.testing.assert_array_equal(dense, expected)


def test_late_errors_name_the_argument():
    with pytest.raises(ValueError, match=r"^params must have at least one floating leaf that takes part"):
        Pruner(k=1, lam=0.1, exclude=matching("kernel"))(PARAMS)
    with pytest.raises(ValueError, match=r"^format must be one of 'dense', 'bcoo', got 'csr'$"):
        Pruner(k=1, lam=0.1).harden(PARAMS, format="csr")
    with pytest.raises(ValueError, match=r"^params must have at least one floating leaf that is counted"):
        share_of_nonzeros(PARAMS, matching("tail"))


class Normed(nnx.Module):
    def __init__(self, rngs):
        self.linear, self.norm = nnx.Linear(8, 4, rngs=rngs), nnx.BatchNorm(4, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.dropout(self.norm(self.linear(x)))


def test_nnx_statistics_match_unpruned():
    """By the recipe of the tutorial; with all weights kept, training is that of the module itself."""
    pruner = Pruner(density=1.0, lam=falling)

    @functools.partial(nnx.jit, static_argnums=3)
    def train_step(model, optimizer, x, prunes):
        def loss(model):
            pruned = pruner(model, 3) if prunes else model
            value = jnp.mean(pruned(x) ** 2)
            if prunes:
                nnx.update(model, nnx.state(pruned, nnx.Not(nnx.Param)))
            return value

        optimizer.update(model, nnx.grad(loss)(model))

    def trained(prunes):
        model = Normed(nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)
        for seed in range(2):
            train_step(model, optimizer, oracles.samples((16, 8), seed, np.float32), prunes)
        return nnx.state(model, nnx.Not(nnx.RngKey)), model

    with jax.numpy_dtype_promotion("standard"):  # for flax
        (found, model), (expected, _) = trained(True), trained(False)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), found, expected)
    assert np.abs(found["norm"]["mean"][...]).min() > 0
    assert share_of_nonzeros(Pruner(density=0.25, lam=0.0).harden(model)) == 0.25
