"""The network: its sizes, names and numbers of parameters, and what its forward pass costs."""

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from experiments.core.errors import UsageError
from experiments.vmoe import model
from experiments.vmoe.routers import HardExpertChoice

E = 32


def network(variant="S/32", moe_blocks=(5, 7), **options):
    fields = {"num_experts": E, "router": HardExpertChoice(28), "group_images": 1}
    return model.make(variant, 1000, moe_blocks=moe_blocks, **(fields | options))


def shapes(of_model, size=224):
    images = np.zeros((1, size, size, 3), np.float32)
    params = jax.eval_shape(of_model.init, jax.random.key(0), images)["params"]
    return {name: leaf.shape for name, leaf in flatten_dict(params, sep="/").items()}


def test_fields_win_over_those_of_the_size():
    params = shapes(
        network("mu/8", (1,), width=16, mlp_dim=24, pool="gap", num_experts=4, router=HardExpertChoice(2)), size=16
    )
    assert params["Transformer/encoderblock_1/MoeLayer_0/experts/Dense_0/kernel"] == (4, 16, 24)
    assert params["Transformer/encoderblock_0/MlpBlock_0/Dense_0/kernel"] == (16, 24)
    assert "cls" not in params
    assert "pre_logits/kernel" not in params
    assert shapes(network(rep_size=16))["pre_logits/kernel"] == (512, 16)


def test_a_fresh_network_gives_every_class_one_thousandth():
    of_model = network("mu/8", (0,), depth=1, router=HardExpertChoice(2), num_experts=4)
    images = np.random.default_rng(0).normal(size=(2, 16, 16, 3)).astype(np.float32)
    logits = jax.jit(lambda: of_model.init_with_output(jax.random.key(0), images)[0])()
    np.testing.assert_allclose(logits, np.full((2, 1000), -np.log(1000)), rtol=1e-6)


@pytest.mark.parametrize("variant", ["S/0", "Ti/16"])
def test_an_unknown_variant_is_named(variant):
    with pytest.raises(UsageError, match=f"V-MoE '{variant}' is not one of SIZE/PATCH"):
        network(variant)
