"""The dispatchers against the dense oracle, one another and NumPy."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.vmoe.dispatch import DISPATCHERS, SOFT
from experiments.vmoe.routers import HardExpertChoice, Logits, RelaxedExpertChoice, SoftMoe, TokenChoice

RNG = np.random.default_rng(0)
G, S, E, D = 2, 10, 4, 3
TOKENS = RNG.normal(size=(G, S, D)).astype(np.float32)
LOGITS = RNG.normal(size=(G, S, E)).astype(np.float32)
KERNELS = RNG.normal(size=(E, D, D)).astype(np.float32)
COTANGENT = RNG.normal(size=(G, S, D)).astype(np.float32)
K, LAM = 3, 1.5
ROOMY = {
    "hard": HardExpertChoice(K),
    "relaxed": RelaxedExpertChoice(K, S, LAM),
    "token choice": TokenChoice(2, S),
}
FULL = {"relaxed": RelaxedExpertChoice(K, K, LAM), "token choice": TokenChoice(2, 3, "gates")}


def route(router, logits):
    return router(Logits(logits, logits))


def output(dispatcher, router, tokens, logits, kernels):
    """Experts that are a dense layer with a bend each."""
    routed = route(router, logits)
    slots = dispatcher.take(tokens, routed)
    outputs = jnp.tanh(jnp.einsum("gecd,edh->gech", slots, kernels.astype(tokens.dtype)))
    return dispatcher.put(outputs, routed)


@functools.partial(jax.jit, static_argnums=0)
def outputs_and_gradients(router, tokens=TOKENS, logits=LOGITS, kernels=KERNELS):
    """By dispatcher, with gradients in tokens, logits and the parameters of the experts."""

    def loss(dispatcher, *arguments):
        y = output(dispatcher, router, *arguments)
        return (y * COTANGENT).sum(), y

    gradient = jax.grad(loss, argnums=(1, 2, 3), has_aux=True)
    return {name: gradient(dispatcher, tokens, logits, kernels) for name, dispatcher in DISPATCHERS.items()}


def assert_equal(found, expected):
    for leaf, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.abs(other).max() > 0.1
        np.testing.assert_allclose(leaf, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ROOMY)
def test_with_room_all_are_the_dense_oracle(name):
    found = outputs_and_gradients(ROOMY[name])
    assert_equal(found["gather"], found["dense"])
    assert_equal(found["einsum"], found["dense"])


@pytest.mark.parametrize("name", FULL)
def test_what_finds_no_room_has_no_part(name):
    found = outputs_and_gradients(FULL[name])
    assert_equal(found["gather"], found["einsum"])
    routed = jax.tree.map(np.asarray, jax.jit(functools.partial(route, FULL[name]))(LOGITS))
    expected = np.zeros((G, S, D))
    for group in range(G):
        for expert in range(E):
            for token, weight in zip(routed.token[group, expert], routed.weight[group, expert], strict=True):
                expected[group, token] += weight * np.tanh(TOKENS[group, token] @ KERNELS[expert])
    np.testing.assert_allclose(found["gather"][1], expected, rtol=1e-5, atol=1e-5)
    assert np.abs(found["dense"][1] - expected).max() > 0.01


def test_soft_moe_is_that_of_numpy():
    slots = 2
    logits = RNG.normal(size=(G, S, E * slots)).astype(np.float32)
    found = jax.jit(functools.partial(output, SOFT, SoftMoe(slots)))(TOKENS, logits, KERNELS)
    for group in range(G):
        values = np.exp(logits[group])
        of_tokens, of_slots = values / values.sum(axis=0), values / values.sum(axis=1, keepdims=True)
        expected = np.zeros((S, D))
        for slot in range(E * slots):
            made = np.tanh(of_tokens[:, slot] @ TOKENS[group] @ KERNELS[slot // slots])
            expected += np.outer(of_slots[:, slot], made)
        np.testing.assert_allclose(found[group], expected, rtol=1e-5, atol=1e-5)


def test_what_comes_back_in_bfloat16_is_added_up_in_float32():
    """Of 1 and 32 times 2**-9: added one by one in bfloat16, the small ones would all be lost."""
    num_experts = 33
    gates = np.full((1, 1, num_experts), 2.0**-9, np.float32)
    gates[..., 0] = 1
    ones = np.ones((1, num_experts, 1, D), jnp.bfloat16)

    @jax.jit
    def put(gates, ones):
        routed = route(TokenChoice(num_experts, 1), jnp.zeros_like(gates))
        routed = dataclasses.replace(routed, weight=gates.swapaxes(1, 2), combine=gates)
        return [dispatcher.put(ones, routed) for dispatcher in DISPATCHERS.values()]

    for found in put(gates, ones):
        assert found.dtype == jnp.bfloat16
        np.testing.assert_array_equal(found, np.full((1, 1, D), 1.0625, jnp.bfloat16))


def test_tokens_in_bfloat16_are_routed_in_float32():
    cases = [(dispatcher, ROOMY["relaxed"]) for dispatcher in DISPATCHERS.values()] + [(SOFT, SoftMoe(1))]

    @jax.jit
    def outputs(tokens):
        return [output(dispatcher, router, tokens, LOGITS, KERNELS) for dispatcher, router in cases]

    for half, expected in zip(outputs(TOKENS.astype(jnp.bfloat16)), outputs(TOKENS), strict=True):
        assert (half.dtype, expected.dtype) == (jnp.bfloat16, jnp.float32)
        error = np.abs(half.astype(np.float32) - expected).max() / np.abs(expected).max()
        assert 1e-4 < error < 0.03
