"""EfficientNet-Lite0 behind its fifth stage, with ImageNet's weights, of which the pointwise convolutions are pruned.

The run with `mask.method=dense` trains a linear head on the whole network and exports it. All others read it
(`config.pretrained`), freeze head and weights, and look for a mask. The parameters are the `head` of the dense run, or
`scores` by the path of a kernel [1, 1, C, C'], in units of their root mean square.
"""

from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict

from experiments.core.config import require, require_one_of
from experiments.core.input.dataset import Data
from experiments.core.kinds import Kinds
from experiments.core.training import optimizer
from experiments.core.training.experiment import Batch, Experiment, Metrics, Params, Recipe
from experiments.core.training.recorder import load_pretrained
from experiments.learned_masks import refit
from experiments.vision import efficientnet_weights, features
from experiments.vision.efficientnet import STAGE_5, Convolution, EfficientNetLite0
from ops import NM, straight_through
from ops.baselines.gates import sample_binary_concrete
from ops.pruning import Pruner, Scored

FIRST_BLOCK = 11  # the one behind the fifth stage
CALIBRATION = 512  # training images, for the norms of Wanda
PATTERNS: dict[str, dict[str, Any]] = {  # what is kept of each matrix
    "2:4": {"k": 2, "groups": NM(4)},
    "half": {"density": 0.5, "per_leaf": True},
    "fifth": {"density": 0.2, "per_leaf": True},
}
_MASK, _LAM = ("mask.pattern", "pretrained"), ("mask.lam",)
METHODS: dict[str, tuple[str, ...]] = {  # by name, the fields that not all methods read
    "dense": (),
    "magnitude": _MASK,
    "wanda": _MASK,  # Sun et al., 2024: magnitude times the norm of the input, over calibration images
    "relaxed": (*_MASK, *_LAM),  # the relaxed mask of scores in training, the hard one in the end
    "learned": (*_MASK, *_LAM),  # the hard mask of scores, with the derivatives of the relaxed one
    "edge_popup": _MASK,  # Ramanujan et al., 2020: the hard mask, the derivatives of the scores themselves
    "gumbel": (*_MASK, "mask.temperature", "mask.penalty"),  # gates at random; the hard mask of their odds in the end
}
KINDS = Kinds(
    "mask.method",
    reads=METHODS,
    only_if={"mask.lam.end": ("mask.lam.schedule", ["geometric"])},
    options={"mask.method": "method", "mask.pattern": "pattern"},
)


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the fields that the trainer does not know."""
    features.validate(config)
    require(config.features.layer == STAGE_5, "features.layer", config.features.layer, STAGE_5)
    mask = config.mask
    require_one_of("mask.method", mask.method, METHODS)
    require_one_of("mask.pattern", mask.pattern, PATTERNS)
    optimizer.validate_lam(mask.lam, "mask.lam")
    require(mask.temperature > 0, "mask.temperature", mask.temperature, "positive")
    require(mask.penalty >= 0, "mask.penalty", mask.penalty, "at least 0")
    single = len(config.seeds) == 1 or not config.export_params
    require(single, "seeds", config.seeds, "a single one where export_params=True")
    allowed = "the parameters of a dense run, which itself has none"
    require(bool(config.pretrained) == (mask.method != "dense"), "pretrained", config.pretrained, allowed)


def load(config: ml_collections.ConfigDict) -> Data:
    """Returns the features, which take long, once the head is known to be there."""
    if config.pretrained:
        dense_head(config)
    return features.load(config)


def dense_head(config: ml_collections.ConfigDict) -> tuple[ml_collections.ConfigDict, Params]:
    """Returns the config of the dense run that `config.pretrained` names, and the head that it trained."""
    of_head, exported = load_pretrained(config.pretrained)
    dense = of_head.to_dict().get("mask", {}).get("method") == "dense"
    require(dense, "pretrained", config.pretrained, "the params.npz of a dense run of this experiment")
    return of_head, exported["head"]


def build(config: ml_collections.ConfigDict, data: Data) -> Experiment:
    """Returns the experiment on features as `data` have them."""
    mask, model = config.mask, EfficientNetLite0(data.num_classes, first_block=FIRST_BLOCK)
    weights, maps = efficientnet_weights.load(), data.train["image"][:CALIBRATION]
    shapes = jax.eval_shape(model.init, jax.random.key(0), jax.ShapeDtypeStruct(maps.shape, "float32"))["params"]
    empty_head = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), shapes.pop("classifier"))
    frozen = flatten_dict({name: weights["params"][name] for name in shapes}, sep="/")
    statistics = {name: weights["batch_stats"][name] for name in shapes}
    kernels = {name: leaf for name, leaf in frozen.items() if leaf.shape[:2] == (1, 1)}
    ones = jax.tree.map(np.ones_like, kernels)  # pruned, they are the mask; some weights are 0 themselves
    lam = optimizer.lam_schedule(mask.lam)
    pruner = Pruner(lam=lam, straight_through=mask.method != "relaxed", **PATTERNS[mask.pattern])
    density = PATTERNS[mask.pattern].get("density", 0.5)
    # By NumPy: XLA would sort these constants while it compiles, which takes it minutes.
    sizes = {name: np.abs(leaf) / np.sqrt(np.mean(leaf**2)) for name, leaf in kernels.items()}
    middles = {name: np.float32(np.quantile(size, 1.0 - density)) for name, size in sizes.items()}
    of_head, head = dense_head(config) if config.pretrained else (config, empty_head)

    def variables_of(masks: Params, head: Params) -> Params:
        masked = {name: kernels[name] * mask for name, mask in masks.items()}
        params = unflatten_dict(frozen | masked, sep="/") | {"classifier": head}
        return {"params": params, "batch_stats": statistics}

    def logits_of(masks: Params, head: Params, maps: jax.Array) -> jax.Array:
        outputs: Any = model.apply(variables_of(masks, head), maps.astype(jnp.float32))
        return outputs.logits

    def input_norms() -> dict[str, jax.Array]:
        """Returns the norms of the inputs of all convolutions, [C], by the path of the kernel."""
        norms = {}

        def record(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
            if isinstance(context.module, Convolution):
                inputs = args[0].reshape(-1, args[0].shape[-1])
                norms["/".join((*context.module.path, "kernel"))] = jnp.linalg.norm(inputs, axis=0)
            return call(*args, **kwargs)

        with nn.intercept_methods(record):
            logits_of(ones, head, jnp.asarray(maps))
        return norms

    def init(key: jax.Array) -> Params:
        if mask.method == "dense":
            return {"head": empty_head}
        scores = pruner.scored(kernels).scores
        if mask.method == "wanda":
            norms = input_norms()
            scores = {name: score * norms[name].reshape(1, 1, -1, 1) for name, score in scores.items()}
        scores = {name: score / jnp.sqrt(jnp.mean(score**2)) for name, score in scores.items()}
        if mask.method == "gumbel":  # odds of gates, of which about the budget is open
            scores = {name: 4.0 * (score - middles[name]) for name, score in scores.items()}
        return {"scores": scores}

    def masks_of(params: Params, key: jax.Array, progress: jax.Array) -> Params:
        """Returns the masks of the forward pass in training."""
        if mask.method == "dense":
            return ones
        if mask.method == "edge_popup":
            return jax.tree.map(straight_through, hard_masks(params), params["scores"])
        if mask.method != "gumbel":
            return pruner(Scored(ones, params["scores"]), progress)
        keys = dict(zip(kernels, jax.random.split(key, len(kernels)), strict=True))
        odds, temperature = params["scores"], mask.temperature
        return {name: sample_binary_concrete(keys[name], odds[name], temperature=temperature) for name in kernels}

    def hard_masks(params: Params) -> Params:
        return pruner.harden(Scored(ones, params["scores"])) if "scores" in params else ones

    def kept(masks: Params) -> jax.Array:
        """Returns the percentage of the kernels that is kept."""
        counts = jnp.stack([jnp.count_nonzero(leaf).astype(jnp.float32) for leaf in masks.values()])
        return 100.0 * counts.sum() / sum(leaf.size for leaf in kernels.values())

    def loss(params: Params, batch: Batch, key: jax.Array, progress: jax.Array) -> tuple[jax.Array, Metrics]:
        masks = masks_of(params, key, progress)
        logits = logits_of(masks, params.get("head", head), batch["image"])
        value = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()
        penalty = 0.0
        if mask.method == "gumbel":
            opened = jnp.stack([jax.nn.sigmoid(odds).mean() for odds in params["scores"].values()])
            penalty = mask.penalty * jnp.mean((opened - density) ** 2)
        return value + penalty, {"loss": value, "kept": kept(masks)}

    def evaluate(params: Params, examples: Batch, progress: jax.Array) -> Metrics:
        masks = hard_masks(params)
        logits = logits_of(masks, params.get("head", head), examples["image"])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, examples["label"])
        correct = (logits.argmax(axis=-1) == examples["label"]).astype(jnp.float32)
        of_each = {"kept": jnp.broadcast_to(kept(masks), losses.shape), f"{data.prefix}_accuracy": 100.0 * correct}
        return of_each | {f"{data.prefix}_loss": losses}

    def refitted(params: Params) -> Metrics:
        own = params.get("head", head)
        masked, unmasked = variables_of(jax.jit(hard_masks)(params), own), variables_of(ones, own)
        accuracies = refit.accuracies(model, masked, unmasked, data, of_head)
        return {f"{data.prefix}_accuracy_{name}": value for name, value in accuracies.items()}

    is_fixed = mask.method in ("magnitude", "wanda")
    transformation = optax.set_to_zero() if is_fixed else optimizer.make(config)
    headline, at_end = (f"{data.prefix}_accuracy",), refitted if data.prefix == "test" else None
    return Experiment(init, loss, evaluate, transformation, headline=headline, at_end=at_end)


RECIPE = Recipe(
    "learned_masks",
    validate,
    build,
    load,
    prepare=lambda config: efficientnet_weights.PACKAGE.require_installed(),
    kinds=KINDS,
)
