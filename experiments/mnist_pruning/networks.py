"""The networks that are pruned, by the name that `config.network` has for them.

To add one: a function that makes it of a config and data, and an entry of NETWORKS.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import ml_collections
from etils import epy

from experiments.core.config import require_one_of, require_wholes
from experiments.core.errors import UsageError
from experiments.core.input.dataset import Data
from experiments.mnist_pruning.conventions import INITIALISATIONS, INPUTS

with epy.lazy_imports():  # --help does without them
    import jax
    import jax.numpy as jnp
    from flax import linen as nn
    from flax import traverse_util

    from experiments.mnist_pruning import model as perceptron
    from experiments.mnist_pruning import pools
    from experiments.vision import filters, inputs, model_fields, vit


class Network(NamedTuple):
    """What there is to train and to prune.

    Attributes:
      init: makes the parameters of a key.
      logits: of the parameters and what `augment` or `prepare` returns.
      pruned: the layers whose kernels are pruned, each by its keys in the parameters, with dots between.
      pictures: of the parameters of the forward pass, images as `Experiment.pictures`.
      augment: of a key and the images of a training batch; None: they are taken as they are.
      prepare: of images to evaluate on.
      flops: of a training step per example; None: to be counted.
    """

    init: Callable[[jax.Array], pools.Params]
    logits: Callable[[pools.Params, jax.Array], jax.Array]
    pruned: Sequence[str]
    pictures: Callable[[pools.Params], dict[str, jax.Array]]
    augment: Callable[[jax.Array, jax.Array], jax.Array] | None = None
    prepare: Callable[[jax.Array], jax.Array] = lambda images: images
    flops: float | None = None


@dataclasses.dataclass(frozen=True)
class NetworkKind:
    """A network, as `NETWORKS` lists it."""

    make: Callable[[ml_collections.ConfigDict, Data], Network]
    validate: Callable[[ml_collections.ConfigDict], None]  # of its own fields
    fields: Sequence[str]  # of the config, which that of another network lacks


def _mlp(config: ml_collections.ConfigDict, data: Data) -> Network:
    """The paper's, with `config.prune_layers` pruned."""
    model = perceptron.MLP(config.hidden, data.num_classes, INITIALISATIONS[config.initialisation]())
    shift, scale = INPUTS[config.inputs](data)

    def inputs(images: jax.Array) -> jax.Array:
        """Vectors [B, D], scaled as the config has it, of images [B, H, W, C]."""
        return (images.reshape(images.shape[0], -1).astype(jnp.float32) - shift) / scale

    return Network(
        lambda key: model.init(key, inputs(jnp.asarray(data.train["image"][:1])))["params"],
        lambda params, images: jnp.asarray(model.apply({"params": params}, inputs(images))),
        [str(layer) for layer in config.prune_layers],
        lambda params: filters.of_units(params["1"]["kernel"], data.train["image"].shape[1:]),
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
    """From scratch, with every matrix pruned but embeddings: those of patches and positions, and the class token.

    A head of zeros, as the transformer comes with, is never among the largest weights, and would stay as it is.
    """
    (size, augment, prepare, _), channels = inputs.of(config), data.train["image"].shape[-1]
    model = model_fields.make(config, data.num_classes, head_init=nn.initializers.lecun_normal())

    def init(key: jax.Array) -> pools.Params:
        return model.init(key, jnp.zeros((1, size, size, channels)))["params"]

    leaves = traverse_util.flatten_dict(jax.eval_shape(init, jax.random.key(0)))
    return Network(
        init,
        lambda params, images: jnp.asarray(model.apply({"params": params}, images)),
        [".".join(layer) for *layer, leaf in leaves if leaf == "kernel" and layer != ["embedding"]],
        filters.of_patches,
        augment,
        prepare,
        3.0 * vit.forward_flops(model, size, channels),
    )


NETWORKS = {
    "mlp": NetworkKind(_mlp, _validate_mlp, ("hidden", "prune_layers", "inputs", "initialisation")),
    "vit": NetworkKind(
        _transformer,
        lambda config: model_fields.validate(config, model_fields.make(config, num_classes=1)),
        ("model", "input"),
    ),
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
