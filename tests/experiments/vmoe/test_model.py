"""The network: its sizes, names and numbers of parameters, and what its forward pass costs."""

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from experiments.core.errors import UsageError
from experiments.vision import vit
from experiments.vmoe import model
from experiments.vmoe.routers import Dense, HardExpertChoice

E = 32


def network(variant="S/32", moe_blocks=(5, 7), **options):
    fields = {"num_experts": E, "router": HardExpertChoice(28), "group_images": 1}
    return model.make(variant, 1000, moe_blocks=moe_blocks, **(fields | options))


def shapes(of_model, size=224):
    images = np.zeros((1, size, size, 3), np.float32)
    params = jax.eval_shape(of_model.init, jax.random.key(0), images)["params"]
    return {name: leaf.shape for name, leaf in flatten_dict(params, sep="/").items()}


def count(params):
    return sum(int(np.prod(shape)) for shape in params.values())


def test_the_parameters_of_the_papers_network():
    params = shapes(network())
    assert round(count(params) / 1e6, 1) == 157.8
    layers = {name.partition("/MoeLayer_0/")[0] for name in params if "MoeLayer" in name}
    assert layers == {"Transformer/encoderblock_5", "Transformer/encoderblock_7"}
    own = {name.partition("/MoeLayer_0/")[2]: shape for name, shape in params.items() if "encoderblock_5/Moe" in name}
    assert own == {
        "router": (512, E),
        "experts/Dense_0/kernel": (E, 512, 2048),
        "experts/Dense_0/bias": (E, 2048),
        "experts/Dense_1/kernel": (E, 2048, 512),
        "experts/Dense_1/bias": (E, 512),
    }
    assert params["Transformer/encoderblock_6/MlpBlock_0/Dense_0/kernel"] == (512, 2048)
    assert params["cls"] == (1, 1, 512)
    assert params["pre_logits/kernel"] == (512, 512)
    # A dense network of this size, and 31 further MLPs with a router in two of its blocks.
    dense = shapes(network(moe_blocks=()))
    mlp = 2 * 512 * 2048 + 2048 + 512
    assert count(params) == count(dense) + 2 * (31 * mlp + 512 * E)


def test_without_experts_there_is_an_mlp_of_equal_cost():
    params = shapes(network(router=Dense(tokens=400, slots=28)))
    (name,) = [
        name for name in params if name.endswith("kernel") and "encoderblock_5/MoeLayer_0/MlpBlock_0/Dense_0" in name
    ]
    width = params[name][1]
    assert width * 400 == pytest.approx(E * 28 * 2048, abs=200)  # half a unit of the width, for each token
    assert not any(part in name for name in params for part in ("experts", "router"))


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


@pytest.mark.parametrize("variant", ["S", "S/", "S/0", "Ti/16", "S-32", "S/32/2"])
def test_an_unknown_variant_is_named(variant):
    with pytest.raises(UsageError, match=f"V-MoE '{variant}' is not one of SIZE/PATCH"):
        network(variant)


def test_operations_of_a_forward_pass():
    of_model = network()
    assert model.tokens_per_image(of_model, 224) == 50
    assert model.tokens_per_image(network(pool="gap"), 224) == 49
    # Experts with as many slots as there are tokens cost what the MLPs do, and the routers come on top.
    cost = model.forward_flops(of_model, 224, 3, moe_blocks=2, num_logits=E, slots_per_image=50)
    routers = 2 * 2 * 50 * 512 * E
    assert cost == vit.forward_flops(of_model, 224) + routers
    doubled = model.forward_flops(of_model, 224, 3, moe_blocks=2, num_logits=E, slots_per_image=100)
    assert doubled - cost == 2 * 50 * 2 * (2 * 512 * 2048)
