"""V-MoE with a relaxed expert-choice router: Section 6, Figure 7 and Appendix C.3 of the paper.

    python -m experiments.vmoe --config=configs/vmoe.py:router=relaxed,data=imagenet2012 --workdir=/tmp/relaxed \\
        --config.router.lam.start=0.1

The part after the colon sets any of OPTIONS below; --config.FIELD=VALUE then sets any field.

The paper trains V-MoE S/32 on JFT-300M: 32 experts in blocks 5 and 7, groups of 8 images, which are n = 400 tokens, of
which every expert takes k = 28; p = 2 with 10 iterations of Dykstra's algorithm (`router.dykstra=10`; here the exact
solver); Adam (0.9, 0.999), batches of 4096, 7 epochs, a learning rate that rises to 1e-3 in 10,000 steps and then falls
linearly to 0, weight decay 0.1 on all parameters, random crop and flip, no auxiliary loss. JFT-300M is not public: the
full-size configs are for ImageNet-21k (with several labels an image, sigmoid loss) and ImageNet (one label, softmax).
TFDS has no ImageNet-21k: it has to be prepared under that name by a builder of your own, as big_vision's authors do,
with the features `image` and `labels` and the split `full`, whose first 51,200 images are the test images.
The paper gives neither lam nor whether the mask is one of the gates or of the logits (`router.score`).

Hardware: S/32 has 157.8 million parameters at 1000 classes, of which 134 million are experts'. The paper's runs took
10 h (hard router) and 15 h (relaxed) on 128 TPUv2. `mesh.expert` divides the experts among devices, with an all-to-all
of their slots; `mesh.fsdp` all large parameters. On 8 devices: --config.mesh.expert=8 --config.mesh.data=-1. The full
size has not been trained here, because JFT-300M could not be obtained, so no number here is ours.

`cifar100` is the paper's network and routing problem on public data: S/4 on CIFAR-100's crops of 28 pixels has as many
tokens, 49 and the class token, as S/32 at 224 pixels, so the same blocks, groups of 8 images, n = 400, 32 experts and
k = 28. All images lie in the memory of one GPU. A step takes 1,024 images, and 30 epochs are some 1,500 steps.

`tokens` is the first stand-in, with the same routing problem, n = 400, 32 experts and k = 28: a network of two blocks,
both with experts, whose tokens are the 4 x 4 patches of the 8 x 8 places of a map of EfficientNet-Lite0, which has
ImageNet's weights and is not trained, for CIFAR-100's images at 128 pixels. 25 images are a group. The map is that of
its fifth stage of seven: on the last (`features.layer=maps`, `model.variant=mu/1`) a network without any MLP
(`router=none`) is as good as one with experts, so routers cannot differ. `make vmoe PRESET=tokens` trains it with every
router.

`small` is the second stand-in, which learns its features itself: a small network on CIFAR-100 at 32 pixels, with the
same routing problem. `make vmoe PRESET=small` trains it; results/vmoe/table.md has what to expect.
"""

from collections.abc import Collection
from typing import Any

import ml_collections
from ml_collections import config_dict

from experiments.core.config import parse_options
from experiments.core.errors import UsageError
from experiments.vision import efficientnet
from experiments.vmoe.router_kinds import ROUTERS

OPTIONS = {
    "router": "relaxed",  # a name in experiments/vmoe/router_kinds.py
    "data": "imagenet2012",  # imagenet21k has several labels an image
    "size": "S/32",
    "cifar100": "no",  # the paper's network and routing, at 28 pixels, for one GPU
    "tokens": "no",  # the first stand-in, on features of a frozen network
    "small": "no",  # the second, which learns its features itself
}
SIZES: dict[str, dict[str, Any]] = {
    "S/32": {"blocks": (5, 7), "group_images": 8, "k": 28},
    "B/16": {"blocks": (9, 11), "group_images": 2, "k": 28},
}
# Steps: 300 epochs of 1.28 million images; 7 epochs, as in the paper, of 14.2 million.
DATA: dict[str, dict[str, Any]] = {
    "imagenet2012": {"dataset": "imagenet2012", "label": "label", "loss": "softmax", "steps": 93_800},
    "imagenet21k": {"dataset": "imagenet21k", "label": "labels", "loss": "sigmoid", "steps": 24_300},
}
CHOICES: dict[str, Collection[str]] = {"router": ROUTERS, "data": DATA, "size": SIZES}  # allowed values


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """Returns the paper's setting with the OPTIONS in `argument`, such as "small,router=token_choice"."""
    options = parse_options(argument, OPTIONS, CHOICES)
    stand_ins = [name for name in ("cifar100", "tokens", "small") if options[name] == "yes"]
    if len(stand_ins) > 1:
        raise UsageError(f"{stand_ins[0]} is not allowed with {stand_ins[1]}: each has a network of its own")
    if stand_ins and (changed := [name for name in ("data", "size") if options[name] != OPTIONS[name]]):
        raise UsageError(f"{changed[0]}={options[changed[0]]} is not allowed with {stand_ins[0]}, which has its own")
    data, size = DATA[options["data"]], SIZES[options["size"]]
    config = ml_collections.ConfigDict()

    # Data.
    config.dataset = data["dataset"]
    config.label = data["label"]
    config.data_dir = config_dict.placeholder(str)  # else $TFDS_DATA_DIR, ../shared/tfds, TFDS's own
    config.download = True  # whether to download a data set of TFDS that is not in data_dir
    config.split = "test"  # the images to evaluate on; or "validation": the last training images, held out
    config.validation_size = 10_000
    config.input = ml_collections.ConfigDict()
    config.input.recipe = "big_vision"  # random crop and flip
    config.input.size = 224
    config.input.augment_on = "host"  # or "device", which then holds all training images: recipes crop_flip and none
    config.input.workers = 16
    config.input.prefetch = 4

    # Training.
    config.seeds = (0,)
    config.batch_size = 4096
    config.accumulate = 1  # microbatches per step
    config.steps = data["steps"]
    config.steps_per_dispatch = 1
    config.eval_every = 1000
    config.eval_batch_size = 4096
    config.checkpoint_every = 100
    config.mesh = ml_collections.ConfigDict({"data": -1, "fsdp": 1, "expert": 1})
    config.optimizer = ml_collections.ConfigDict()
    config.optimizer.name = "adam"
    config.optimizer.momentum = 0.9
    config.optimizer.b2 = 0.999
    config.optimizer.learning_rate = 1e-3
    config.optimizer.schedule = "linear"
    config.optimizer.warmup_steps = 10_000
    config.optimizer.weight_decay = 0.1
    config.loss = data["loss"]  # softmax or sigmoid

    # The network; `variant` is a size (mu, S, B, L), a slash and the patch size. 0 leaves a field to the size.
    config.model = ml_collections.ConfigDict()
    config.model.variant = options["size"]
    config.model.width = 0
    config.model.depth = 0
    config.model.mlp_dim = 0
    config.model.num_heads = 0
    config.model.pool = "tok"
    config.model.dtype = "bfloat16"
    config.model.remat = False
    # A run without an accelerator is refused, because a step would take minutes.
    config.accelerator = True

    # The layers of experts.
    config.moe = ml_collections.ConfigDict()
    config.moe.blocks = size["blocks"]  # counted from 0
    config.moe.num_experts = 32
    config.moe.group_images = size["group_images"]  # whose tokens compete
    config.moe.dispatcher = "gather"  # or einsum; or dense: every expert on every token, without buffers

    # The router. An expert takes k tokens of a group; 0: such that a token has `factor` experts on average, rounded up.
    config.router = ml_collections.ConfigDict()
    config.router.name = options["router"]
    config.router.k = size["k"]
    config.router.factor = 2.0
    config.router.multiple_of = 4
    config.router.capacity = (
        0  # slots in the buffer of an expert; 0: k, which token_choice and soft use for nothing else
    )
    config.router.noise = 1.0  # standard deviation in training, in units of 1 / num_experts
    # What tokens compete by in expert-choice routers: logits or gates.
    config.router.score = ROUTERS[options["router"]].score
    config.router.p = 2.0
    config.router.lam = ml_collections.ConfigDict()  # in the units of the score
    config.router.lam.schedule = "constant"  # at start; or "geometric": from start to end, changing in each step
    config.router.lam.start = 0.1
    config.router.lam.end = 0.1
    config.router.hard_after = (
        1.0  # the share of training in which lam's schedule runs; after it the mask is hard; 1: never
    )
    config.router.dykstra = 0  # iterations of Dykstra's algorithm, the paper's 10; 0: the exact solver
    config.router.limit = 3.0  # balanced: the most experts of a token
    config.router.selected = 2  # token_choice: the experts of a token
    config.router.priority = "order"  # token_choice: which token comes first when a buffer is full; or "gates"
    config.router.auxiliary = 0.01  # token_choice: the weight of its importance and load loss
    config.router.update_from_flattened_dict(dict(ROUTERS[options["router"]].fields))

    config.tensorboard = False  # True: curves and histograms, in WORKDIR/tensorboard
    if options["cifar100"] == "yes":
        _make_cifar100(config)
    elif stand_ins:
        _make_stand_in(config)
    if options["tokens"] == "yes":
        _make_tokens(config)
    return config


def _make_cifar100(config: ml_collections.ConfigDict) -> None:
    """Changes the paper's setting to S/4 on crops of CIFAR-100, and to lengths of 30 epochs."""
    config.update(
        {
            "dataset": "cifar100",
            "validation_size": 5000,
            "input": {"recipe": "crop", "size": 28, "augment_on": "device", "workers": 0},
            "batch_size": 1024,
            "steps": 1500,
            "steps_per_dispatch": 50,
            "eval_every": 150,
            "eval_batch_size": 1000,
            "checkpoint_every": 500,
            "optimizer": {"warmup_steps": 150},
            "model": {"variant": "S/4"},
        }
    )
    # Runs that differ in these numbers alone share a compiled program.
    config.arguments = ("optimizer.learning_rate", "router.lam.start", "router.lam.end")


def _make_stand_in(config: ml_collections.ConfigDict) -> None:
    """Changes a config to `small`: a network and batches for 2 CPU cores; 25 images of 16 tokens are a group."""
    config.update(
        {
            "dataset": "cifar100",
            "validation_size": 5000,
            "input": {"recipe": "crop_flip", "size": 32, "augment_on": "device", "workers": 0},
            "batch_size": 200,
            "steps": 1000,
            "steps_per_dispatch": 1,  # more of them at once are slower on CPUs
            "eval_every": 100,
            "eval_batch_size": 1000,
            "checkpoint_every": 500,
            "optimizer": {"learning_rate": 3e-3, "warmup_steps": 100},
            "model": {
                "variant": "mu/8",
                "width": 64,
                "depth": 4,
                "mlp_dim": 128,
                "num_heads": 2,
                "pool": "gap",
                "dtype": "float32",
            },
            "moe": {"blocks": (1, 3), "group_images": 25},
            "accelerator": False,
        }
    )


def _make_tokens(config: ml_collections.ConfigDict) -> None:
    """Changes `small` to tokens that are 16 patches of a map of ImageNet's features; two groups a step."""
    config.features = ml_collections.ConfigDict()
    config.features.network = "efficientnet_lite0"
    config.features.size = 128  # pixels: 8 x 8 places
    config.features.layer = efficientnet.STAGE_5
    config.features.directory = config_dict.placeholder(str)  # the directory that keeps them, else runs/features
    del config["input"]
    config.update(
        {
            "batch_size": 50,
            "steps": 800,
            "eval_every": 160,
            "eval_batch_size": 100,  # with more at once a balanced plan takes twice as long, and others gain nothing
            "checkpoint_every": 800,
            "optimizer": {"learning_rate": 1e-2, "warmup_steps": 80},
            "model": {"variant": "mu/2", "depth": 2},
            "moe": {"blocks": (0, 1)},
        }
    )
