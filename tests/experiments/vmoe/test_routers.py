"""The routers against NumPy, their limits, and their gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import ops
from experiments.vmoe.routers import (
    PRIORITIES,
    SCORES,
    HardExpertChoice,
    Logits,
    RelaxedExpertChoice,
    SoftMoe,
    TokenChoice,
)
from experiments.vmoe.routers.token_choice import _exceeds
from ops.isotonic import Dykstra
from tests.experiments.vmoe import numpy_routing

RNG = np.random.default_rng(0)
G, S, E = 2, 12, 5
LOGITS = RNG.normal(size=(G, S, E)).astype(np.float32)
GATES = numpy_routing.softmax(LOGITS.astype(np.float64))
K = 3


def logits_of(values):
    return Logits(jnp.asarray(values), jnp.asarray(values))


def route(values, *routers):
    """What each router returns, in NumPy; compiled together."""
    routed = jax.jit(lambda logits: [router(logits) for router in routers])(logits_of(values))
    return jax.tree.map(np.asarray, routed)


def test_the_table_worked_out_by_hand():
    # Gates of a token sum to 1, those of the table do not: they are halved, and a fourth expert has what is left.
    table = np.array([[0.4, 0.0, 0.2], [0.5, 0.1, 0.4], [0.3, 0.2, 0.6]])
    gates = np.concatenate([table / 2, 1 - table.sum(axis=1, keepdims=True) / 2], axis=1)
    with np.errstate(divide="ignore"):
        logits = np.log(gates)[None].astype(np.float32)
    hard = [HardExpertChoice(2, score) for score in SCORES]
    relaxed = [RelaxedExpertChoice(2, 2, lam=0.01, score=score) for score in SCORES]
    for routed in route(logits, *hard, *relaxed):
        np.testing.assert_array_equal(routed.token[0, :3], [[1, 0], [2, 1], [2, 1]])
        np.testing.assert_allclose(2 * routed.weight[0, :3], [[0.5, 0.4], [0.2, 0.1], [0.6, 0.4]], rtol=1e-6)
        combine = [[0.4, 0.0, 0.0], [0.5, 0.1, 0.4], [0.0, 0.2, 0.6]]
        np.testing.assert_allclose(2 * routed.combine[0, :, :3], combine, rtol=1e-6)


@pytest.mark.parametrize("score", SCORES)
def test_hard_expert_choice(score):
    (routed,) = route(LOGITS, HardExpertChoice(K, score))
    scores = {"gates": GATES, "logits": LOGITS}[score]
    for group in range(G):
        for expert in range(E):
            tokens = np.argsort(-scores[group, :, expert])[:K]
            np.testing.assert_array_equal(routed.token[group, expert], tokens)
            np.testing.assert_allclose(routed.weight[group, expert], GATES[group, tokens, expert], rtol=1e-5)
            combine = GATES[group, :, expert] * numpy_routing.hard_mask(scores[group, :, expert], K)
            np.testing.assert_allclose(routed.combine[group, :, expert], combine, rtol=1e-5)
    np.testing.assert_array_equal(routed.selected, np.full((G, E), K))
    np.testing.assert_allclose(routed.mass, routed.combine.sum(axis=1), rtol=1e-5)
    np.testing.assert_allclose(routed.gates, GATES, rtol=1e-5)
    np.testing.assert_array_equal(routed.auxiliary, np.zeros(G))


@pytest.mark.parametrize(("score", "p", "lam"), [("logits", 2.0, 1.5), ("gates", 2.0, 0.2), ("logits", 4 / 3, 1.5)])
def test_relaxed_expert_choice(score, p, lam):
    scores = {"gates": GATES, "logits": LOGITS}[score]
    support = []
    capacities = (K, S)
    of_capacities = route(LOGITS, *(RelaxedExpertChoice(K, capacity, lam, p, score) for capacity in capacities))
    for capacity, routed in zip(capacities, of_capacities, strict=True):
        for group in range(G):
            for expert in range(E):
                mask = numpy_routing.relaxed_mask(scores[group, :, expert], K, lam, p)
                combine = mask * GATES[group, :, expert]
                of_slots = mask[routed.token[group, expert]]
                np.testing.assert_allclose(of_slots, -np.sort(-mask)[:capacity], atol=1e-5)  # the largest, in order
                np.testing.assert_allclose(
                    routed.weight[group, expert], combine[routed.token[group, expert]], atol=1e-5
                )
                np.testing.assert_allclose(routed.combine[group, :, expert], combine, atol=1e-5)
                np.testing.assert_allclose(routed.mass[group, expert], combine.sum(), rtol=1e-4)
                assert routed.selected[group, expert] == (mask > 0).sum()
                assert len(set(routed.token[group, expert])) == capacity
                support.append((mask > 0).sum())
        np.testing.assert_allclose((routed.combine / routed.gates).sum(axis=1), np.full((G, E), K), rtol=1e-5)
        dropped = 1 - routed.weight.sum(axis=-1) / routed.mass
        assert dropped.min() > 0.01 if capacity == K else np.abs(dropped).max() < 1e-5
    assert min(support) > K
    assert max(support) < S


@pytest.mark.parametrize("score", SCORES)
def test_without_relaxation_it_is_the_hard_router_with_its_gradient(score):
    scores = np.sort({"gates": GATES, "logits": LOGITS}[score], axis=1)
    small = 1e-5
    assert (scores[:, -K] - scores[:, -K - 1]).min() > 2 * small
    cotangents = RNG.normal(size=(G, E, K)).astype(np.float32), RNG.normal(size=(G, S, E)).astype(np.float32)

    def gradient(router, values):
        def outcome(values):
            routed = router(logits_of(values))
            weights = routed.weight[..., :K], routed.combine
            return sum((c * w).sum() for c, w in zip(cotangents, weights, strict=True)), routed

        return jax.grad(outcome, has_aux=True)(values)

    @jax.jit
    def gradients(values, lam):
        routers = [HardExpertChoice(K, score)]
        routers += [RelaxedExpertChoice(K, K + 2, lam, score=score), RelaxedExpertChoice(K, K, 0.0, score=score)]
        return [gradient(router, values) for router in routers]

    (expected, hard), *of_small = gradients(LOGITS, small)
    assert np.abs(expected).max() > 0.1
    for found, relaxed in (*of_small, *gradients(LOGITS, 0.0)[1:]):
        np.testing.assert_array_equal(relaxed.token[..., :K], hard.token)
        np.testing.assert_allclose(relaxed.weight[..., :K], hard.weight, rtol=1e-6)
        np.testing.assert_array_equal(relaxed.weight[..., K:], 0)
        for name in ("combine", "selected", "mass", "gates"):
            np.testing.assert_allclose(getattr(relaxed, name), getattr(hard, name), rtol=1e-6)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("x64")
def test_gradients_are_those_of_finite_differences():
    routers = [
        HardExpertChoice(K),
        RelaxedExpertChoice(K, K + 1, 1.0),
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


def test_dykstra_is_that_of_the_operator_and_in_the_end_exact():
    lam, iterations = 4.0, (3, 10, 3000)
    exact, *approximate = [
        routed.combine
        for routed in route(LOGITS, *(RelaxedExpertChoice(K, S, lam, iterations=i) for i in (None, *iterations)))
    ]
    solver = Dykstra(max_iter=10, tol=0.0)
    mask = jax.jit(lambda values: ops.topk_mask(values, K, lam=lam, axis=1, solver=solver))(LOGITS)
    np.testing.assert_allclose(approximate[1], GATES * mask, rtol=1e-5, atol=1e-6)
    errors = [np.abs(combine - exact).max() for combine in approximate]
    assert errors[0] > errors[1] > 1e-3
    assert errors[2] < 1e-5


@pytest.mark.parametrize("priority", PRIORITIES)
@pytest.mark.parametrize(("selected", "capacity"), [(1, 2), (2, 3), (3, S)])
def test_token_choice(selected, capacity, priority):
    (routed,) = route(LOGITS, TokenChoice(selected, capacity, priority))
    full = 0
    for group in range(G):
        mask, served = numpy_routing.token_choice(GATES[group], selected, capacity, priority)
        np.testing.assert_allclose(routed.combine[group], mask * GATES[group], rtol=1e-5)
        np.testing.assert_array_equal(routed.selected[group], mask.sum(axis=0))
        np.testing.assert_allclose(routed.mass[group], (mask * GATES[group]).sum(axis=0), rtol=1e-5)
        for expert, tokens in enumerate(served):
            slots, weights = routed.token[group, expert], routed.weight[group, expert]
            assert len(set(slots)) == capacity  # no token twice
            np.testing.assert_array_equal(slots[: len(tokens)], tokens)
            np.testing.assert_allclose(weights[: len(tokens)], GATES[group, tokens, expert], rtol=1e-5)
            np.testing.assert_array_equal(weights[len(tokens) :], 0)
        full += sum(len(tokens) < of_expert for tokens, of_expert in zip(served, mask.sum(axis=0), strict=True))
    assert (full > 0) == (capacity < S)


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
    np.testing.assert_array_equal(route(LOGITS, router)[0].auxiliary, np.zeros(G))


def test_soft_moe():
    slots, experts = 2, 3
    values = RNG.normal(size=(G, S, experts * slots)).astype(np.float32)
    router = SoftMoe(slots)
    assert router.num_logits(experts) == experts * slots
    (mixtures,) = route(values, router)
    assert mixtures.dispatch.shape == mixtures.combine.shape == (G, S, experts, slots)
    np.testing.assert_allclose(mixtures.dispatch.sum(axis=1), np.ones((G, experts, slots)), rtol=1e-5)
    np.testing.assert_allclose(mixtures.combine.sum(axis=(2, 3)), np.ones((G, S)), rtol=1e-5)
    # Logits of one expert are side by side.
    exponentials = np.exp(values[1, 4, 2 * slots + 1])
    np.testing.assert_allclose(mixtures.dispatch[1, 4, 2, 1], exponentials / np.exp(values[1, :, 5]).sum(), rtol=1e-5)
    np.testing.assert_allclose(mixtures.combine[1, 4, 2, 1], exponentials / np.exp(values[1, 4]).sum(), rtol=1e-5)


def test_ties_are_broken_by_index():
    equal = np.zeros((1, S, E), np.float32)
    by_experts = [
        HardExpertChoice(K, "gates"),
        HardExpertChoice(K, "logits"),
        RelaxedExpertChoice(K, K, 0.0),
        RelaxedExpertChoice(K, K, 0.1),
        RelaxedExpertChoice(K, K, 0.1, iterations=10),
    ]
    *of_experts, in_order, by_gates = route(equal, *by_experts, *(TokenChoice(2, K, name) for name in PRIORITIES))
    for routed in of_experts:
        np.testing.assert_array_equal(routed.token, np.tile(np.arange(K), (1, E, 1)))
    for routed in (in_order, by_gates):
        np.testing.assert_array_equal(routed.token[:, :2], np.tile(np.arange(K), (1, 2, 1)))
        np.testing.assert_array_equal(routed.selected, [[S, S, 0, 0, 0]])


def test_the_normal_tail_and_its_slope():
    z = np.array([-4.0, -0.5, 0.0, 1.0, 6.0], np.float32)
    tail, slope = jax.vmap(jax.value_and_grad(_exceeds))(z)
    np.testing.assert_allclose(tail, scipy.stats.norm.sf(z), rtol=1e-5)
    np.testing.assert_allclose(slope, -scipy.stats.norm.pdf(z), rtol=1e-5)
