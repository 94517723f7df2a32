"""A pruner is the operator of the tree with what its schedules say, and lets a network find its weights."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops import NM, Channels, hard_topk_mag_tree, topk_mag_tree
from ops.pruning import Pruner, matching, matrices, share_of_nonzeros
from tests.ops import oracles

PARAMS = {
    "body": {"kernel": oracles.samples((8, 16), 1, np.float32), "bias": oracles.samples(16, 2, np.float32)},
    "head": {"kernel": 2 * oracles.samples((16, 4), 3, np.float32)},
    "step": np.int32(3),
}


def falling(step):
    return 8.0 * 0.5**step


def assert_same(found, expected):
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize("per_leaf", [False, True])
def test_the_forward_pass_is_the_operator_at_this_step(per_leaf):
    pruner = Pruner(density=0.25, lam=falling, p=4 / 3, per_leaf=per_leaf)
    for step in (0, 5):
        expected = topk_mag_tree(
            PARAMS, 0.25, lam=falling(step), p=4 / 3, debias=True, per_leaf=per_leaf, include=matrices
        )
        found = pruner(PARAMS, step)
        assert_same(found, expected)
        assert found["body"]["bias"] is PARAMS["body"]["bias"]
        assert found["step"] is PARAMS["step"]


def test_steps_that_are_traced_compile_once():
    traces = []

    @jax.jit
    def forward(params, step):
        traces.append(step)
        return Pruner(k=lambda step: 100.0 - 10 * step, lam=falling)(params, step)

    for step in (0, 3):
        expected = topk_mag_tree(PARAMS, k=100.0 - 10 * step, lam=falling(step), debias=True, include=matrices)
        found = forward(PARAMS, jnp.float32(step))
        jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-5), found, expected)
    assert len(traces) == 1


def test_what_is_pruned_is_what_predicates_of_paths_say():
    pruner = Pruner(density=0.25, lam=1e-3, include=matching("kernel$"), exclude=matching("^head/"))
    found = pruner(PARAMS)
    assert np.count_nonzero(found["body"]["kernel"]) == 32
    assert found["head"]["kernel"] is PARAMS["head"]["kernel"]
    assert share_of_nonzeros(found, pruner.prunes) == 0.25
    assert share_of_nonzeros(found) == np.float32((32 + 64) / (128 + 64))


def test_straight_through_is_hard_with_the_derivatives_of_the_relaxed():
    def gradient(pruner):
        def loss(params):
            params = pruner({**PARAMS, **params})
            return sum(jnp.sum(3 * params[name]["kernel"]) for name in ("body", "head"))

        return jax.jit(jax.grad(loss))({name: PARAMS[name] for name in ("body", "head")})

    options = {"density": 0.25, "lam": 0.7}
    through = Pruner(**options, straight_through=True)
    assert_same(through(PARAMS), hard_topk_mag_tree(PARAMS, 0.25, include=matrices))
    slopes = gradient(through)
    assert_same(slopes, gradient(Pruner(**options)))
    hard = 3.0 * np.asarray(through(PARAMS)["body"]["kernel"] != 0)
    assert np.abs(slopes["body"]["kernel"] - hard).max() > 0.1


def test_hardened_they_are_exactly_as_many_and_as_they_were():
    pruner = Pruner(k=lambda step: 60.5 - step, lam=falling)
    hard = pruner.harden(PARAMS, 20)
    assert_same(hard, hard_topk_mag_tree(PARAMS, k=40, include=matrices))
    sparse = pruner.harden(PARAMS, 20, format="bcoo")
    assert sparse["body"]["bias"] is PARAMS["body"]["bias"]
    assert sum(sparse[name]["kernel"].nse for name in ("body", "head")) == 40
    for name in ("body", "head"):
        np.testing.assert_array_equal(sparse[name]["kernel"].todense(), hard[name]["kernel"])
    assert_same(jax.jit(pruner.harden)(PARAMS, 20), hard)
    with pytest.raises(ValueError, match=r"^step must be given where k is a schedule, got None$"):
        pruner.harden(PARAMS)
    assert_same(Pruner(density=0.2, lam=falling).harden(PARAMS), hard_topk_mag_tree(PARAMS, 0.2, include=matrices))


@pytest.mark.parametrize(("groups", "k"), [(NM(4), 2), (Channels(-1), 7)])
def test_groups(groups, k):
    pruner = Pruner(k=k, lam=0.3, groups=groups)
    assert_same(pruner(PARAMS), topk_mag_tree(PARAMS, k=k, lam=0.3, debias=True, include=matrices, groups=groups))
    assert_same(pruner.harden(PARAMS), hard_topk_mag_tree(PARAMS, k=k, include=matrices, groups=groups))


def test_falling_lam_finds_the_weights_that_a_hard_top_k_does_not():
    inputs = oracles.samples((64, 12), 7, np.float32)
    truth = np.zeros((12, 1), np.float32)
    truth[[2, 7, 9]] = [[1.0], [-1.0], [0.5]]
    start = {"kernel": np.linspace(0.3, 0.1, 12, dtype=np.float32)[:, None]}  # largest where nothing is

    def support(pruner):
        def update(params, step):
            def loss(params):
                return jnp.mean((inputs @ (pruner(params, step)["kernel"] - truth)) ** 2)

            return jax.tree.map(lambda w, g: w - 0.1 * g, params, jax.grad(loss)(params)), None

        end, _ = jax.jit(lambda params: jax.lax.scan(update, params, jnp.arange(150.0)))(start)
        kernel = pruner.harden(end)["kernel"]
        return set(np.flatnonzero(kernel)), np.abs(kernel - truth).max()

    found, error = support(Pruner(k=3, lam=lambda step: 10.0 * 0.92**step, p=4 / 3))
    assert found == {2, 7, 9}
    assert error < 0.05
    assert support(Pruner(k=3, lam=0.0))[0] != {2, 7, 9}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lam": 0.1}, r"^exactly one of density and k must be given, got density=None, k=None$"),
        ({"lam": 0.1, "k": 1, "density": falling}, r"^exactly one of density and k must be given, got density=<func"),
        ({"lam": -1.0, "k": 1}, r"^lam must be 0 or in .* got -1\.0$"),
        ({"lam": 0.1, "density": 1.5}, r"^density must be in \[0, 1\], got 1.5$"),
        ({"lam": 0.1, "k": -1}, r"^k must be finite and >= 0, got -1$"),
        ({"lam": 0.1, "k": 1, "groups": 4}, r"^groups must be None, Blocks, Channels or NM, got 4$"),
        ({"lam": 0.1, "k": 1, "p": 3}, r"^p must be in \(1, 2\], got 3"),
        ({"lam": 0.1, "k": 1, "include": "kernel"}, r"^include must be a function of key path and leaf, got 'kernel'$"),
    ],
)
def test_what_cannot_be_is_named_before_anything_is_pruned(options, message):
    with pytest.raises(ValueError, match=message):
        Pruner(**options)


def test_what_cannot_be_found_out_before_is_named_then():
    with pytest.raises(ValueError, match=r"^params must have at least one floating leaf that takes part"):
        Pruner(k=1, lam=0.1, exclude=matching("kernel"))(PARAMS)
    with pytest.raises(ValueError, match=r"^format must be one of 'dense', 'bcoo', got 'csr'$"):
        Pruner(k=1, lam=0.1).harden(PARAMS, format="csr")
    with pytest.raises(ValueError, match=r"^params must have at least one floating leaf that is counted"):
        share_of_nonzeros(PARAMS, matching("tail"))
