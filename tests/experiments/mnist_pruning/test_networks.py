"""The second network: what of a vision transformer is pruned, by the methods that prune the paper's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util

from configs.mnist_pruning import get_config
from experiments.core.errors import UsageError
from experiments.core.input import dataset as data_lib
from experiments.mnist_pruning.experiment import RECIPE
from experiments.mnist_pruning.networks import INITIALISATIONS, INPUTS, NETWORKS
from experiments.mnist_pruning.pools import Pools
from experiments.vision.digits import DIGITS
from tests.experiments.support import set_fields, small_config

WIDTH, HIDDEN = 8, 12
SMALL = DIGITS | {
    "model.width": WIDTH,
    "model.depth": 1,
    "model.mlp_dim": HIDDEN,
    "validation_size": 120,
    "eval_batch_size": 120,
    "batch_size": 32,
    "seeds": (0, 1),
    "steps": 4,
    "eval_every": 4,
    "checkpoint_every": 4,
    "optimizer.warmup_steps": 1,
}
# By hand: three matrices of attention and what is made of the heads, two of the MLP, and the head of 5 coarse labels.
SIZE = 4 * WIDTH**2 + 2 * WIDTH * HIDDEN + 5 * WIDTH


def small_transformer(variant="hard", **fields):
    """On the digits' coarse labels."""
    config = get_config(f"{variant},network=vit")
    set_fields(config, fields, SMALL)
    return config


@pytest.fixture(scope="module")
def network():
    """The network, and its parameters."""
    config = small_transformer()
    made = NETWORKS["vit"].make(config, data_lib.load(config))
    return made, jax.jit(made.init)(jax.random.key(0))


def test_every_matrix_is_pruned_but_embeddings_and_a_unit_of_attention_is_one_number_of_one_head(network):
    made, params = network
    kernels = Pools("network", made.pruned).kernels(params)
    assert sum(kernel.size for kernel in kernels.values()) == SIZE
    # None starts from zeros, which a top-k would never select.
    assert min(float(jnp.abs(kernel).mean()) for kernel in kernels.values()) > 0.05
    pruned = {layer.replace(".", "/") + "/kernel" for layer in kernels}
    leaves = traverse_util.flatten_dict(params, sep="/")
    left = {name.partition("_0/")[0] for name, leaf in leaves.items() if name not in pruned and leaf.ndim > 1}
    biases = "Transformer/encoderblock"  # of queries, keys and values, by head
    assert left == {"embedding/kernel", "pos_embedding", biases}

    rows = Pools("row", made.pruned).gather(params)
    (query,) = (layer for layer in made.pruned if layer.endswith("query"))
    (out,) = (layer for layer in made.pruned if layer.endswith("out"))
    np.testing.assert_array_equal(rows[query][5], kernels[query][:, 1, 1])  # of two heads of four numbers
    np.testing.assert_array_equal(rows[out][3], kernels[out][:, :, 3].ravel())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model.num_heads": 3}, r"^config\.model\.num_heads=3 .* a divisor of the width 8$"),
        ({"network": "cnn"}, r"^config\.network='cnn' .* one of mlp, vit$"),
        ({"network": "mlp"}, r"^config\.network='mlp' needs config\.hidden and "),
    ],
)
def test_a_mistake_is_named_in_a_line(fields, message):
    config = small_transformer()
    config.update_from_flattened_dict(fields)
    with pytest.raises(UsageError, match=message):
        RECIPE.validate(config)


def test_the_argument_names_a_variant_a_network_or_both():
    for argument, named in {"gradual,network=vit": ("gradual", "vit"), "network=vit": ("relaxed", "vit")}.items():
        config = get_config(argument)
        assert (config.method, config.network) == named
        RECIPE.validate(config)
    for argument in ("network=cnn", "hard,vit"):
        with pytest.raises(UsageError, match=r"is not allowed|is not one of"):
            get_config(argument)


def test_inputs_are_scaled_as_their_name_says():
    data = data_lib.load(small_config())
    pixels = data.train["image"].astype(np.float64)
    shift, scale = INPUTS["standardised"](data)
    assert pixels.mean() == pytest.approx(shift, abs=1e-5)
    assert pixels.std() == pytest.approx(scale)
    for name, range_of_it in {"unit": (0.0, 1.0), "symmetric": (-1.0, 1.0), "raw": (0.0, 255.0)}.items():
        shift, scale = INPUTS[name](data)
        assert tuple((pixel - shift) / scale for pixel in (0.0, 255.0)) == range_of_it


def test_kernels_start_as_wide_as_their_name_says():
    kernels = {name: initialisation(jax.random.key(0), (400, 100)) for name, initialisation in INITIALISATIONS.items()}
    widths = {name: float(kernel.std()) for name, kernel in kernels.items()}
    expected = {"lecun_normal": 0.05, "glorot_uniform": (2 / 500) ** 0.5, "normal_0.1": 0.1, "normal_0.01": 0.01}
    assert widths == pytest.approx(expected | {"torch": 0.05 / 3**0.5}, rel=0.02)
    assert float(jnp.abs(kernels["torch"]).max()) == pytest.approx(0.05, rel=1e-2)
