"""The networks that are pruned, by their names in `config.network`.

To add one: a function that makes it from a config and data, and an entry of NETWORKS.
"""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import ml_collections
from flax import linen as nn
from flax import traverse_util
from jax.nn import initializers

from experiments.core.config import require, require_one_of, require_wholes
from experiments.core.errors import UsageError
from experiments.core.input.dataset import Data
from experiments.core.training.experiment import Params
from experiments.vision import resnet
from experiments.vision.networks import DTYPES, Network, inputs_of, transformer
from experiments.vision.networks import validate as validate_transformer

# The paper leaves open how its MLP's inputs are scaled: pixels x in [0, 255] become (x - shift) / scale.
INPUTS: dict[str, Callable[[Data], tuple[float, float]]] = {
    "standardised": Data.pixel_mean_and_std,
    "unit": lambda data: (0.0, 255.0),  # in [0, 1]
    "symmetric": lambda data: (127.5, 127.5),  # in [-1, 1]
    "raw": lambda data: (0.0, 1.0),
}
# The paper does not say how kernels are initialised either.
INITIALISATIONS: dict[str, initializers.Initializer] = {
    "lecun_normal": initializers.lecun_normal(),
    "glorot_uniform": initializers.glorot_uniform(),
    "torch": initializers.variance_scaling(1 / 3, "fan_in", "uniform"),  # within 1 / sqrt(inputs)
    "normal_0.1": initializers.normal(0.1),
    "normal_0.01": initializers.normal(0.01),
}


class MLP(nn.Module):
    """The paper's `W3 relu(W2 relu(W1 a + b1) + b2) + b3`, with layers named "1", "2", ...; biases start at 0.

    Attributes:
      widths: the widths of the hidden layers.
      num_classes: the width of the output.
      kernel_init: the initialiser of all kernels.
    """

    widths: Sequence[int]
    num_classes: int
    kernel_init: initializers.Initializer

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Inputs [B, D] to logits [B, num_classes]."""
        for layer, width in enumerate(self.widths, start=1):
            x = nn.relu(nn.Dense(width, kernel_init=self.kernel_init, name=str(layer))(x))
        return nn.Dense(self.num_classes, kernel_init=self.kernel_init, name=str(len(self.widths) + 1))(x)


@dataclasses.dataclass(frozen=True)
class NetworkKind:
    """An entry of `NETWORKS`."""

    make: Callable[[ml_collections.ConfigDict, Data], Network]
    validate: Callable[[ml_collections.ConfigDict], None]  # checks its own fields
    fields: Sequence[str]  # the fields that only its configs have


def _mlp(config: ml_collections.ConfigDict, data: Data) -> Network:
    """Returns the paper's MLP, with `config.prune_layers` pruned."""
    model = MLP(config.hidden, data.num_classes, INITIALISATIONS[config.initialisation])
    shift, scale = INPUTS[config.inputs](data)

    def inputs(images: jax.Array) -> jax.Array:
        """Images [B, H, W, C] to vectors [B, D], scaled as `config.inputs` says."""
        return (images.reshape(images.shape[0], -1).astype(jnp.float32) - shift) / scale

    return Network(
        lambda key: model.init(key, inputs(jnp.asarray(data.train["image"][:1])))["params"],
        lambda params, images: jnp.asarray(model.apply({"params": params}, inputs(images))),
        pruned=[str(layer) for layer in config.prune_layers],
    )


def _validate_mlp(config: ml_collections.ConfigDict) -> None:
    require_one_of("inputs", config.inputs, INPUTS)
    require_one_of("initialisation", config.initialisation, INITIALISATIONS)
    require_wholes(lambda widths: all(width > 0 for width in widths), "hidden", config.hidden, "a tuple of widths")
    num_layers = len(config.hidden) + 1
    require_wholes(
        lambda layers: 0 < len(layers) == len(set(layers)) and set(layers) <= set(range(1, num_layers + 1)),
        "prune_layers",
        config.prune_layers,
        f"a tuple of different layers out of 1 to {num_layers}",
    )


def _transformer(config: ml_collections.ConfigDict, data: Data) -> Network:
    """Returns a vision transformer from scratch; all matrices are pruned except embeddings.

    The head does not start from zeros as usual, because zeros would never be among the largest weights.
    """
    network = transformer(config, data, head_init=initializers.lecun_normal())
    return network._replace(pruned=[layer for layer in _kernels(network.init) if layer != "embedding"])


def _kernels(init: Callable[[jax.Array], Params]) -> list[str]:
    """Returns the layers with a kernel, each as its keys joined by dots."""
    leaves = traverse_util.flatten_dict(jax.eval_shape(init, jax.random.key(0)))
    return [".".join(layer) for *layer, leaf in leaves if leaf == "kernel"]


def _resnet(config: ml_collections.ConfigDict, data: Data) -> Network:
    """Returns a residual network from scratch; all convolutions and the head are pruned.

    Its norms take mean and variance from the batch in training. For `logits` they are measured anew, with the very
    weights that are given, on the first `config.model.statistics_images` of the training images: of a dense network, of
    a pruned one, and of one that is only pruned after training.
    """
    fields, inputs, images = config.model, inputs_of(config), data.train["image"]
    model = resnet.ResNet(data.num_classes, fields.depth, fields.width, jnp.dtype(fields.dtype))
    measured_on = images[: fields.statistics_images]

    def init(key: jax.Array) -> Params:
        return model.init(key, jnp.zeros((1, inputs.side, inputs.side, images.shape[-1])))["params"]

    def with_statistics(params: Params, images: jax.Array) -> tuple[jax.Array, Params]:
        return model.apply({"params": params}, images, mutable=[resnet.STATISTICS])

    def logits(params: Params, images: jax.Array) -> jax.Array:
        # The images are constants of the program: without the barrier the compiler would compute with them, slowly.
        measured = jax.lax.optimization_barrier(jnp.asarray(measured_on))
        _, statistics = with_statistics(params, inputs.prepare(measured))
        return jnp.asarray(model.apply({"params": params, **statistics}, images, frozen=True))

    return Network(
        init,
        logits,
        train_logits=lambda params, images: with_statistics(params, images)[0],
        augment=inputs.augment,
        prepare=inputs.prepare,
        pruned=_kernels(init),
    )


def _validate_resnet(config: ml_collections.ConfigDict) -> None:
    fields, in_memory = config.model, config.input.augment_on
    require(fields.depth > 2 and fields.depth % 6 == 2, "model.depth", fields.depth, "8, 14, 20, or 6 more and so on")
    for name in ("width", "statistics_images"):
        require(fields[name] > 0, f"model.{name}", fields[name], "positive")
    require_one_of("model.dtype", fields.dtype, DTYPES)
    require(in_memory == "device", "input.augment_on", in_memory, "device for network=resnet")


NETWORKS = {
    "mlp": NetworkKind(_mlp, _validate_mlp, ("hidden", "prune_layers", "inputs", "initialisation")),
    "vit": NetworkKind(_transformer, validate_transformer, ("model", "input")),
    "resnet": NetworkKind(_resnet, _validate_resnet, ("model", "input")),
}


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks `config.network` and the fields of that network."""
    require_one_of("network", config.network, NETWORKS)
    kind = NETWORKS[config.network]
    if any(field not in config for field in kind.fields):
        fields = " and ".join(f"config.{field}" for field in kind.fields)
        raise UsageError(
            f"config.network={config.network!r} needs {fields}: "
            f"--config=configs/mnist_pruning.py:network={config.network} has them"
        )
    kind.validate(config)
