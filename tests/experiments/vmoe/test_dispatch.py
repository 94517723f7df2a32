"""The precision of the dispatchers; their values are in test_layer.py."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from experiments.vmoe.dispatch import DISPATCHERS
from experiments.vmoe.routers import Logits, TokenChoice


def test_what_comes_back_in_bfloat16_is_added_up_in_float32():
    """Of 1 and 32 times 2**-9: added one by one in bfloat16, the small ones would all be lost."""
    num_experts, width = 33, 3
    gates = np.full((1, 1, num_experts), 2.0**-9, np.float32)
    gates[..., 0] = 1
    ones = np.ones((1, num_experts, 1, width), jnp.bfloat16)

    @jax.jit
    def put(gates, ones):
        equal = jnp.zeros_like(gates)
        routed = TokenChoice(num_experts, 1)(Logits(equal, equal))
        routed = dataclasses.replace(routed, weight=gates.swapaxes(1, 2), combine=gates)
        return [dispatcher.put(ones, routed) for dispatcher in DISPATCHERS.values()]

    for found in put(gates, ones):
        assert found.dtype == jnp.bfloat16
        np.testing.assert_array_equal(found, np.full((1, 1, width), 1.0625, jnp.bfloat16))
