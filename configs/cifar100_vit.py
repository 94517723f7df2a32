"""Fine-tuning a vision transformer on CIFAR-100 with a top-k loss: Section 6, Figure 6 and Appendix C.2 of the paper.

    python -m experiments.cifar100_vit \\
        --config=configs/cifar100_vit.py:loss=topk,p=4/3 --workdir=/tmp/topk --config.loss.lam=0.3

The part after the colon sets any of OPTIONS below; --config.FIELD=VALUE then sets any field.

The paper fixes ViT-B/16 with ImageNet-21k weights, SGD with momentum 0.9, batches of 512, 100 steps, a linear warm-up
and then a cosine, the peak learning rates (5e-3 for top-3 losses, 3e-3 for cross-entropy), k = 3 and p. For the rest it
refers to Dosovitskiy et al.: 384 pixels, inception crop and flip, values in [-1, 1], gradients clipped to the norm 1,
no weight decay, a head that starts from zero. It leaves open lam and the length of the warm-up, here a tenth of the
steps, as in the short schedules of Dosovitskiy et al. (50 of 500, 100 of 1000). The paper's top-3 loss is
`target=one_hot`; `experiments/cifar100_vit/losses.py` explains what is wrong with it, and the target `smooth`.

Hardware: 86 million parameters and 512 images of 384 pixels a step. The backward pass computes the activations of a
block again (`model.remat`); without that XLA counts 3 GB of temporaries an image on CPUs. One GPU may need
--config.accumulate=4; --config.mesh.fsdp=8 divides the parameters among 8 devices. A step of batch 8 on 8 virtual CPU
devices peaked at 6.8 GB. The paper's step took 9.5 s on 8 TPUs (cross-entropy), 9.7 s (p = 2), 10 s (p = 4/3);
Dosovitskiy et al. report 89.17 % accuracy after 500 steps and 91.15 % after 1000. The full size has not been
trained here, because the ImageNet-21k weights could not be obtained, so none of these numbers is ours.

`transformer` takes the place of ViT-B/16: a pretrained ViT-S/14 of DINOv2 at 224 pixels, trained whole by the paper's
procedure, on one GPU (`experiments/vision/dinov2.py` says where its weights come from).

`features` is the first stand-in: a linear head on the features of EfficientNet-Lite0, which has ImageNet's weights and
is not trained. Apart from that network and lam = 1 it is the paper's setting; 100 steps take seconds once the features
are computed. `last_block` also trains the network's last block, and `whole` all of it.

`small` is the second stand-in, which learns its features itself: a small network at 32 pixels, with weights from
training it on the 20 coarse labels (`pretrain`). `make cifar100 PRESET=small` does both, for all losses;
results/cifar100_vit/table.md has what to expect.
"""

from collections.abc import Collection
from fractions import Fraction

import ml_collections
from ml_collections import config_dict

from experiments.cifar100_vit.losses import LOSSES
from experiments.core.config import parse_options
from experiments.core.errors import UsageError
from experiments.vision.efficientnet import BEFORE_LAST_BLOCK

OPTIONS = {
    "loss": "topk",  # a name in experiments/cifar100_vit/losses.py
    "p": "2",  # a number or a fraction in (1, 2]
    "target": "one_hot",  # the paper's; or smooth, with which the loss has a lower bound
    "steps": "100",
    "recipe": "vit_jax",  # that of Dosovitskiy et al.; or big_vision, that of big_vision for transfer
    "weights": "original",  # those of Dosovitskiy et al.; or augreg, those of Steiner et al.
    "features": "no",  # the first stand-in: the head alone, on features of a frozen network
    "last_block": "no",  # the same with the last block of that network
    "whole": "no",  # all of that network, for accelerators
    "transformer": "no",  # a DINOv2 ViT-S/14 at 224 pixels, all of it trained: for a GPU
    "small": "no",  # the second stand-in, from the weights in config.pretrained
    "pretrain": "no",  # the run that makes these weights
}
# The options that a form fixes itself.
FIXED = dict.fromkeys(("features", "last_block", "whole", "transformer", "small"), ("recipe", "weights")) | {
    "pretrain": ("loss", "p", "target", "steps", "recipe", "weights")
}
WEIGHTS = {
    "original": "gs://vit_models/imagenet21k/ViT-B_16.npz",
    "augreg": "gs://vit_models/augreg/B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0.npz",
}
RECIPES = {"vit_jax": "inception", "big_vision": "big_vision"}
CHOICES: dict[str, Collection[str]] = {"loss": LOSSES, "recipe": RECIPES, "weights": WEIGHTS}  # allowed values
# The paper's rates: the lower one for cross-entropy and its kind, the higher one for top-3 losses and all others.
LEARNING_RATE, CROSS_ENTROPY_LEARNING_RATE = 5e-3, 3e-3
CROSS_ENTROPIES = ("xent", "xent_temperature", "xent_smoothed", "truncated_entropy")
BIG_VISION_LEARNING_RATE = 1e-2
SIZE = 160  # pixels of images for EfficientNet-Lite0


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """Returns the paper's setting with the OPTIONS in `argument`, such as "loss=topk,p=4/3" or "small,loss=xent"."""
    options = parse_options(argument, OPTIONS, CHOICES)
    steps = int(options["steps"])
    forms = [form for form in FIXED if options[form] == "yes"]
    if len(forms) > 1 and forms != ["small", "pretrain"]:
        raise UsageError(f"{forms[0]} is not allowed with {forms[1]}: they are two networks")
    for form, others in FIXED.items():
        if options[form] == "yes" and (changed := [name for name in others if options[name] != OPTIONS[name]]):
            name = changed[0]
            raise UsageError(f"{name}={options[name]} is not allowed with {form}, which has one {name} of its own")
    config = ml_collections.ConfigDict()

    # Data.
    config.dataset = "cifar100"
    config.label = "label"  # or "coarse_label"
    config.data_dir = config_dict.placeholder(str)  # else $TFDS_DATA_DIR, ../shared/tfds, TFDS's own
    config.download = True  # whether to download a data set of TFDS that is not in data_dir
    config.split = "test"  # the images to evaluate on; or "validation": the last training images, held out
    config.validation_size = 1000  # 2 %, as in Dosovitskiy et al.
    config.input = ml_collections.ConfigDict()
    config.input.recipe = RECIPES[options["recipe"]]
    config.input.size = 384
    config.input.augment_on = "host"  # or "device", which then holds all training images: recipes crop_flip and none
    config.input.workers = 16
    config.input.prefetch = 4

    # Training. Seeds differ in the order and the augmentation of the images.
    config.seeds = (0,)
    config.batch_size = 512
    config.accumulate = 1  # microbatches per step
    config.steps = steps
    config.steps_per_dispatch = 1
    config.eval_every = steps
    config.eval_batch_size = 512
    config.checkpoint_every = 50
    config.mesh = ml_collections.ConfigDict({"data": -1, "fsdp": 1})
    config.optimizer = ml_collections.ConfigDict()
    config.optimizer.name = "sgd"
    config.optimizer.momentum = 0.9
    config.optimizer.learning_rate = learning_rate(options["loss"])
    config.optimizer.schedule = "cosine"
    config.optimizer.warmup_steps = steps // 10
    config.optimizer.clip_norm = 1.0
    if options["recipe"] == "big_vision":
        config.optimizer.learning_rate = BIG_VISION_LEARNING_RATE

    # The network; `variant` is a size (mu, Ti, S, B, L), a slash and the patch size. 0 leaves a field to the size.
    config.model = ml_collections.ConfigDict()
    config.model.variant = "B/16"
    config.model.width = 0
    config.model.depth = 0
    config.model.mlp_dim = 0
    config.model.num_heads = 0
    config.model.pool = "tok"
    config.model.dtype = "bfloat16"
    config.model.scan = True
    config.model.remat = True  # a third slower, with a small part of the memory
    config.pretrained = WEIGHTS[options["weights"]]  # or a local path; empty: none
    # A run without an accelerator is refused, because a step would take minutes.
    config.accelerator = True

    # The loss; cross-entropy does not read k, p, lam and target.
    config.loss = ml_collections.ConfigDict()
    config.loss.name = options["loss"]
    config.loss.k = 3
    config.loss.p = float(Fraction(options["p"]))
    config.loss.lam = 0.1
    config.loss.target = options["target"]

    config.export_examples = False  # True: the rank of every image's label at the end, for intervals over images
    config.tensorboard = False  # True: curves and histograms, in WORKDIR/tensorboard
    for form, layer in {"features": "pooled", "last_block": BEFORE_LAST_BLOCK, "whole": None}.items():
        if options[form] == "yes":
            _make_efficientnet(config, layer)
    if options["transformer"] == "yes":
        _make_dinov2(config)
    if "yes" in (options["small"], options["pretrain"]):
        _make_small(config)
    if options["pretrain"] == "yes":
        _make_pretraining(config)
    return config


def learning_rate(loss: str) -> float:
    """Returns the paper's peak learning rate for the loss with this name."""
    return CROSS_ENTROPY_LEARNING_RATE if loss in CROSS_ENTROPIES else LEARNING_RATE


def _make_efficientnet(config: ml_collections.ConfigDict, layer: str | None) -> None:
    """Changes a config to EfficientNet-Lite0 with ImageNet's weights, of which the part after `layer` is trained.

    None trains all of it. Two CPU cores train the head in seconds, and the last block in minutes.
    """
    del config["model"]
    config.optimizer.weight_decay = 0.0
    config.update({"validation_size": 5000, "pretrained": "", "loss": {"lam": 1.0}})
    if layer is None:
        config.network = "efficientnet_lite0"
        config.input.size = SIZE
        return
    config.features = ml_collections.ConfigDict()
    config.features.network = "efficientnet_lite0"
    config.features.size = (
        SIZE  # a ridge regression on the features is right for 59 % of the images; at 128 pixels for 55 %
    )
    config.features.layer = layer
    config.features.directory = config_dict.placeholder(str)  # the directory that keeps them, else runs/features
    config.images_per_class = 0  # only the first ones of each class are trained on; 0: all
    for field in ("input", "accelerator"):
        del config[field]
    config.update({"steps_per_dispatch": min(10, config.steps), "eval_batch_size": 1000})


def _make_dinov2(config: ml_collections.ConfigDict) -> None:
    """Changes a config to DINOv2's ViT-S/14 at 224 pixels, with CIFAR-100 in the memory of one GPU."""
    at_once = next(number for number in (50, 25, 10, 5, 2, 1) if config.steps % number == 0)
    config.update(
        {
            "validation_size": 5000,
            "input": {"size": 224, "augment_on": "device", "workers": 0},
            "steps_per_dispatch": at_once,
            "checkpoint_every": config.steps,
            "eval_batch_size": 500,
            "model": {"variant": "S/14"},
            "pretrained": "dinov2-s14",
            "loss": {"lam": 1.0},
        }
    )
    del config.model["remat"]
    config.model.remat = "cheap"  # a quarter of the memory of none for activations, and less of it to write and read
    config.model.gelu = "exact"
    config.model.attention = "cudnn"  # its memory does not grow with the tokens squared; or "xla", for other devices
    # Runs that differ in these numbers alone share a compiled program.
    config.arguments = ("optimizer.learning_rate", "loss.lam")


def _make_small(config: ml_collections.ConfigDict) -> None:
    """Changes a config to a network and batches for 2 CPU cores."""
    config.update(
        {
            "validation_size": 5000,
            "input": {"recipe": "crop_flip", "size": 32, "augment_on": "device", "workers": 0},
            "batch_size": 128,
            "steps_per_dispatch": 10,
            "eval_batch_size": 500,
            "model": {
                "variant": "mu/4",
                "width": 64,
                "depth": 4,
                "mlp_dim": 256,
                "num_heads": 2,
                "pool": "gap",
                "dtype": "float32",
                "scan": False,
                "remat": False,
            },
            "pretrained": "",
            "accelerator": False,
        }
    )


def _make_pretraining(config: ml_collections.ConfigDict) -> None:
    """Changes a config to Adam from scratch on the 20 coarse labels, which keeps the final weights."""
    config.update(
        {
            "label": "coarse_label",
            "steps": 4000,
            "steps_per_dispatch": 50,
            "eval_every": 1000,
            "checkpoint_every": 500,
            "loss": {"name": "xent"},
            "optimizer": {"name": "adam", "learning_rate": 2e-3, "warmup_steps": 200},
        }
    )
    config.optimizer.weight_decay = 0.05
    config.optimizer.decayed = "matrices"
    config.export_params = True
