"""The other networks: what of a vision transformer is pruned, and what a residual network is evaluated with."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
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


def small_resnet(variant="hard", **fields):
    """Eight layers on the digits."""
    config = get_config(f"{variant},network=resnet")
    small = {"dataset": "digits", "input.size": 8, "model.depth": 8, "model.width": 4, "model.statistics_images": 64}
    set_fields(config, fields, small)
    return config


@pytest.fixture(scope="module")
def residual():
    """The experiment, its network and parameters, and five images to evaluate on."""
    config = small_resnet()
    data = data_lib.load(config)
    experiment, network = RECIPE.build(config, data), NETWORKS["resnet"].make(config, data)
    network = network._replace(logits=jax.jit(network.logits), train_logits=jax.jit(network.train_logits))
    examples = {name: jnp.asarray(array[:5]) for name, array in data.evaluation.items()}
    return experiment, network, jax.jit(experiment.init)(jax.random.key(0)), examples


@pytest.fixture(scope="module")
def network():
    """The network, and its parameters."""
    config = small_transformer()
    made = NETWORKS["vit"].make(config, data_lib.load(config))
    return made, jax.jit(made.init)(jax.random.key(0))


def test_vit_prunes_all_but_embeddings(network):
    """Takes one number of one head for a unit of attention."""
    made, params = network
    kernels = Pools("network", made.pruned).kernels(params)
    assert sum(kernel.size for kernel in kernels.values()) == SIZE
    # None starts from zeros, which a top-k would never select.
    assert min(np.abs(kernel).mean() for kernel in kernels.values()) > 0.05
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
        ({"network": "cnn"}, r"^config\.network='cnn' .* one of mlp, vit, resnet$"),
        ({"network": "mlp"}, r"^config\.network='mlp' needs config\.hidden and "),
    ],
)
def test_a_mistake_is_named_in_a_line(fields, message):
    config = small_transformer()
    config.update_from_flattened_dict(fields)
    with pytest.raises(UsageError, match=message):
        RECIPE.validate(config)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model.depth", 21),
        ("model.width", 0),
        ("model.statistics_images", 0),
        ("model.dtype", "float16"),
        ("input.augment_on", "host"),
    ],
)
def test_a_mistake_in_a_resnet_is_named(field, value):
    config = small_resnet()
    config.update_from_flattened_dict({field: value})
    with pytest.raises(UsageError, match=rf"^config\.{field}='?{value}'? .* must be "):
        RECIPE.validate(config)


def test_norms_use_the_evaluated_weights(residual):
    """On training images: a scale of weights in front of a norm, and other images, change nothing."""
    _, network, params, examples = residual
    params, images = params["network"], network.prepare(examples["image"])
    logits = network.logits(params, images)
    stem = {"kernel": 10 * params["stem"]["kernel"]}
    np.testing.assert_allclose(network.logits(params | {"stem": stem}, images), logits, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(network.logits(params, images.at[1:].set(0.0))[0], logits[0], rtol=1e-4, atol=1e-4)
    assert float(jnp.abs(network.train_logits(params, images) - logits).max()) > 0.05


def test_resnet_prunes_all_kernels(residual):
    experiment, network, params, examples = residual
    batch = examples | {"image": network.prepare(examples["image"])}
    _, metrics = jax.jit(experiment.loss)(params, batch, jax.random.key(1), jnp.float32(0))
    kernels = {name: np.asarray(layer["kernel"]) for name, layer in params["network"].items() if "kernel" in layer}
    assert set(network.pruned) == set(kernels)
    sizes = 9 * (1 * 4 + 4 * 4 * 2 + 4 * 8 + 8 * 8 + 8 * 16 + 16 * 16) + 16 * 10
    assert sum(kernel.size for kernel in kernels.values()) == sizes
    least = -np.sort(-np.abs(np.concatenate([np.ravel(kernel) for kernel in kernels.values()])))[sizes // 10 - 1]
    pruned = {name: {"kernel": kernel * (np.abs(kernel) >= least)} for name, kernel in kernels.items()}
    pruned["head"] |= {"bias": params["network"]["head"]["bias"]}
    logits = network.train_logits(params["network"] | pruned, batch["image"])
    expected = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()
    assert float(metrics["loss"]) == pytest.approx(float(expected), rel=1e-4)


def test_argument_names_variant_or_network():
    for argument, named in {"gradual,network=resnet": ("gradual", "resnet"), "network=vit": ("relaxed", "vit")}.items():
        config = get_config(argument)
        assert (config.method, config.network) == named
        RECIPE.validate(config)
    for argument in ("network=cnn", "hard,vit"):
        with pytest.raises(UsageError, match=r"is not allowed|is not one of"):
            get_config(argument)


def test_input_scales_match_their_names():
    data = data_lib.load(small_config())
    pixels = data.train["image"].astype(np.float64)
    shift, scale = INPUTS["standardised"](data)
    assert pixels.mean() == pytest.approx(shift, abs=1e-5)
    assert pixels.std() == pytest.approx(scale)
    for name, range_of_it in {"unit": (0.0, 1.0), "symmetric": (-1.0, 1.0), "raw": (0.0, 255.0)}.items():
        shift, scale = INPUTS[name](data)
        assert tuple((pixel - shift) / scale for pixel in (0.0, 255.0)) == range_of_it


def test_initial_widths_match_their_names():
    @jax.jit
    def initialised(key):
        return {name: initialisation(key, (400, 100)) for name, initialisation in INITIALISATIONS.items()}

    kernels = jax.device_get(initialised(jax.random.key(0)))
    widths = {name: float(kernel.std()) for name, kernel in kernels.items()}
    expected = {"lecun_normal": 0.05, "glorot_uniform": (2 / 500) ** 0.5, "normal_0.1": 0.1, "normal_0.01": 0.01}
    assert widths == pytest.approx(expected | {"torch": 0.05 / 3**0.5}, rel=0.02)
    assert np.abs(kernels["torch"]).max() == pytest.approx(0.05, rel=1e-2)
