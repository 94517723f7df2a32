"""The routers against NumPy, their limits, and their gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import ops
from experiments.vmoe.routers import (
    SCORES,
    HardExpertChoice,
    Logits,
    RelaxedExpertChoice,
    SoftMoe,
    TokenChoice,
)
from ops.isotonic import Dykstra
from tests.experiments.vmoe import numpy_routing

RNG = np.random.default_rng(0)
G, S, E = 2, 12, 5
LOGITS = RNG.normal(size=(G, S, E)).astype(np.float32)
GATES = numpy_routing.softmax(LOGITS.astype(np.float64))
K = 3


def by_experts(k, capacity, lam=0.0, p=2.0, *, score):
    """A router and the same in NumPy, of a group."""
    router = RelaxedExpertChoice(k, capacity, lam, p, score) if lam else HardExpertChoice(k, score)
    scores = {"gates": GATES, "logits": LOGITS.astype(np.float64)}[score]
    return router, lambda group: numpy_routing.expert_choice(scores[group], k, capacity, lam, p)


def by_tokens(selected, capacity, priority):
    router = TokenChoice(selected, capacity, priority)
    return router, lambda group: numpy_routing.token_choice(GATES[group], selected, capacity, priority)


CASES = [
    *(by_experts(K, K, score=score) for score in SCORES),
    by_experts(K, S, 0.2, score="gates"),
    by_experts(K, S, 1.5, 4 / 3, score="logits"),
    *(by_tokens(*case) for case in [(2, 3, "order"), (2, 3, "gates"), (3, S, "order")]),
]


@jax.jit
def route(values):
    """What each router of CASES returns, compiled together."""
    return [router(Logits(values, values)) for router, _ in CASES]


@jax.jit
def by_dykstra(values):
    """What ten iterations make of the logits, by the router and by the operator; and the exact mask."""
    router = RelaxedExpertChoice(K, S, 4.0, iterations=10)
    approximate = ops.topk_mask(values, K, lam=4.0, axis=1, solver=Dykstra(max_iter=10, tol=0.0))
    return router(Logits(values, values)).combine, approximate, ops.topk_mask(values, K, lam=4.0, axis=1)


def test_they_are_those_of_numpy():
    full = []
    for (router, oracle), routed in zip(CASES, jax.tree.map(np.asarray, route(LOGITS)), strict=True):
        for group in range(G):
            mask, served = oracle(group)
            combine = mask * GATES[group]
            np.testing.assert_allclose(routed.combine[group], combine, atol=1e-5, err_msg=str(router))
            np.testing.assert_array_equal(routed.selected[group], (mask > 0).sum(axis=0))
            np.testing.assert_allclose(routed.mass[group], combine.sum(axis=0), rtol=1e-4)
            np.testing.assert_allclose(routed.gates[group], GATES[group], rtol=1e-5)
            for expert, tokens in enumerate(served):
                slots, weights = routed.token[group, expert], routed.weight[group, expert]
                assert len(set(slots)) == len(slots)  # no token twice
                np.testing.assert_array_equal(slots[: len(tokens)], tokens)
                np.testing.assert_allclose(weights[: len(tokens)], combine[tokens, expert], atol=1e-5)
                np.testing.assert_array_equal(weights[len(tokens) :], 0)
            full.append(sum(map(len, served)) < (mask > 0).sum())
        np.testing.assert_array_equal(routed.auxiliary, 0)  # without noise
    assert 0 < sum(full) < len(full)


@pytest.mark.usefixtures("x64")
def test_gradients_match_finite_differences():
    routers = [
        HardExpertChoice(K),
        RelaxedExpertChoice(K, K + 1, 1.0, 4 / 3),
        RelaxedExpertChoice(K, K + 1, 0.3, score="gates"),
        TokenChoice(2, K),
        SoftMoe(1),
    ]
    rng = np.random.default_rng(1)
    noise = 0.2 * rng.normal(size=LOGITS.shape)
    shapes = [jax.eval_shape(lambda r=router: r(Logits(jnp.float64(noise), noise, 0.2))) for router in routers]
    cotangents = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), shapes)

    @jax.jit
    @functools.partial(jax.grad, has_aux=True)
    def gradient_and_outcome(values):
        """The outcome is a number for each router, of all it returns for its own logits."""
        routed = [router(Logits(own + noise, own, 0.2)) for router, own in zip(routers, values, strict=True)]
        products = jax.tree.map(lambda c, value: (c * value.astype(jnp.float64)).sum(), cotangents, routed)
        outcome = jnp.stack([sum(jax.tree.leaves(product)) for product in products])
        return outcome.sum(), outcome

    point = np.tile(LOGITS.astype(np.float64), (len(routers), 1, 1, 1))
    change = 1e-6 * rng.normal(size=point.shape)
    gradient, _ = gradient_and_outcome(point)
    assert gradient.dtype == jnp.float64
    slopes = (np.asarray(gradient) * change).sum(axis=(1, 2, 3))
    assert np.abs(slopes).min() > 1e-7
    (_, before), (_, after) = gradient_and_outcome(point - change), gradient_and_outcome(point + change)
    np.testing.assert_allclose((after - before) / 2, slopes, rtol=1e-6)


def test_importance_and_load_loss():
    selected, noise = 2, 0.3
    noisy = LOGITS + noise * RNG.normal(size=LOGITS.shape).astype(np.float32)
    router = TokenChoice(selected, S)
    routed = jax.jit(router)(Logits(jnp.asarray(noisy), jnp.asarray(LOGITS), noise))
    np.testing.assert_allclose(routed.gates, numpy_routing.softmax(noisy), rtol=1e-5)
    for group in range(G):
        importance, load = np.zeros(E), np.zeros(E)
        for token in range(S):
            threshold = np.sort(noisy[group, token])[-selected]
            importance += GATES[group, token]  # without noise
            load += scipy.stats.norm.sf((threshold - LOGITS[group, token]) / noise)
        variation = [scipy.stats.variation(importance), scipy.stats.variation(load)]
        np.testing.assert_allclose(routed.auxiliary[group], np.mean(np.square(variation)), rtol=1e-4)


def test_dykstra_is_that_of_the_operator():
    found, approximate, exact = by_dykstra(LOGITS)
    np.testing.assert_allclose(found, GATES * approximate, rtol=1e-5, atol=1e-6)
    assert np.abs(approximate - exact).max() > 1e-3
