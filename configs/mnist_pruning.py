"""Pruning an MLP on MNIST while it trains: Section 6, Figure 5 and Appendix C.1 of the paper.

    python -m experiments.mnist_pruning \\
        --config=configs/mnist_pruning.py:annealed --workdir=/tmp/annealed --config.seeds="(0, 1, 2)"

The part after the colon is one of VARIANTS below (`relaxed` if left out); --config.FIELD=VALUE then sets any field. The
paper fixes the network, SGD with batches of 128 and a constant learning rate of 1e-2, 30 epochs, 10 % kept in each
matrix and lam = 1e-4. It leaves open the initialisation and the scale of the inputs (here LeCun-normal and
standardised).

`network=vit`, also after a variant as in `annealed,network=vit`, prunes a small vision transformer instead, from
scratch on CIFAR-100's coarse labels; `network=resnet` prunes ResNet-20 on its 100 classes. The paper does not do
that; the end of this file has their fields.

Hardware: any; 10 seeds at once take a minute or two on 2 CPU cores. Expect 12.7 % test error of `hard`, 5.1 % of
`annealed` with `--config.lam.start=10` and 3.7 % of `dense` (results/mnist_pruning/table.md). One seed proves
nothing here (single runs of `hard` have ended at 6 % and at 14 %), so report at least ten.
"""

from typing import Any

import ml_collections
from ml_collections import config_dict

from experiments.core.config import parse_options
from experiments.core.errors import UsageError
from experiments.mnist_pruning.methods import METHODS
from experiments.mnist_pruning.networks import NETWORKS

# Every method in the paper's setting, with a density schedule that it can follow; and `annealed`, in which the relaxed
# operator starts near the identity, so dense, and becomes hard. At its first lam only rescaling keeps the weights'
# size.
VARIANTS: dict[str, dict[str, Any]] = {
    name: {"method": name, "density_schedule.name": method.density_schedules[0]} for name, method in METHODS.items()
} | {
    "annealed": {
        "method": "relaxed",
        "p": 4 / 3,
        "debias": True,
        "lam.schedule": "geometric",
        "lam.start": 3.0,
        "lam.end": 1e-3,
    }
}


def get_config(argument: str = "relaxed") -> ml_collections.ConfigDict:
    """Returns the paper's setting with the changes of the variant and of the network."""
    variant, *rest = argument.split(",") if "=" not in argument.partition(",")[0] else ("relaxed", argument)
    if variant not in VARIANTS:
        raise UsageError(f"variant {variant!r} is not one of " + ", ".join(VARIANTS))
    options = parse_options(",".join(rest), {"network": "mlp"}, {"network": NETWORKS})
    config = ml_collections.ConfigDict()

    # Data: an image classification set of TFDS (mnist, fashion_mnist, kmnist, ...), one of your own
    # (docs/how_to/data.md), or scikit-learn's "digits".
    config.dataset = "mnist"
    config.data_dir = config_dict.placeholder(str)  # else $TFDS_DATA_DIR, ../shared/tfds, TFDS's own
    config.download = True  # whether to download a data set of TFDS that is not in data_dir
    config.split = "test"  # the images to evaluate on; or "validation": the last training images, held out
    config.validation_size = 10_000

    # Training. The seeds train side by side, each with its own order of data and random numbers. Their number changes
    # the last bits, because CPUs sum the gradients of biases in another order for three seeds than for four or more. A
    # slope of 1 / lam multiplies that: up to 13.6 points of test error at lam = 1e-4, 0.2 with lam annealed
    # (results/mnist_pruning/batching.json).
    config.seeds = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
    config.epochs = 30
    config.batch_size = 128
    config.optimizer = ml_collections.ConfigDict()
    config.optimizer.name = "sgd"
    config.optimizer.learning_rate = 1e-2
    config.optimizer.momentum = 0.0
    config.optimizer.schedule = "constant"  # the paper's; or "cosine", down to 0

    # The network: the paper's MLP, with the widths of its hidden layers. Another network has other fields.
    config.network = options["network"]
    config.hidden = (32, 32)
    config.inputs = "standardised"  # or unit (in [0, 1]), symmetric (in [-1, 1]), raw (0 to 255); open in the paper
    config.initialisation = "lecun_normal"  # or glorot_uniform, torch, normal_0.1, normal_0.01; open in the paper, too

    # Pruning: which weight matrices, numbered from 1, and how much of each is kept.
    config.method = "relaxed"
    config.prune_layers = (1, 2, 3)  # the paper's text; its slides say (2, 3)
    config.density = 0.1
    config.budget = "matrix"  # one budget for each matrix; or "network", for all together; or "row", for each unit
    config.density_schedule = ml_collections.ConfigDict()
    config.density_schedule.name = "constant"  # or "cubic", falling from 1, for methods that can follow it
    config.density_schedule.begin = 0.0  # the shares of training between which it falls
    config.density_schedule.end = 0.7
    config.density_schedule.every = 100  # the steps between two masks (methods gradual and rigl)

    # The relaxed operator (methods relaxed and straight_through).
    config.p = 2.0
    config.lam = ml_collections.ConfigDict()
    # "constant" at start; or "geometric" from start to end, changing in each step; or "support": the lam at which a
    # given number of weights is not 0, all of them at first, then fewer by a cubic schedule until hard_after.
    config.lam.schedule = "constant"
    config.lam.start = 1e-4
    config.lam.end = 1e-4
    # True: a selected weight keeps its value, as in the published code, and the operator tends to the identity as lam
    # grows. False: it is shrunk by a factor such as 1 / (1 + lam), as in the paper.
    config.debias = False
    # Other readings of the paper: lam times the number of weights (the regulariser is a mean, not a sum); weights times
    # the relaxed mask of their magnitudes or squares; the selection without a derivative, or with the derivative that
    # the published code has.
    config.lam_times_size = False
    config.form = "operator"  # or mask, mask_of_squares, stop_gradient, published_jacobian
    config.hard_after = 1.0  # the share of training in which lam's schedule runs; after it the top-k is hard; 1: never

    # Entropic optimal transport (method ot_straight_through).
    config.ot = ml_collections.ConfigDict()
    config.ot.epsilon = 0.1

    # A relaxed mask (method mask_straight_through) of experiments/mnist_pruning/methods/masks.py. Masks of the
    # literature are not sparse, so they only give a hard top-k its gradient.
    config.mask = ml_collections.ConfigDict()
    config.mask.name = "sigmoid"
    # The operator's lam: without unit for entropic_ot, for the others in units of the weights, which are about 0.04 in
    # layer 1 and 0.2 in layers 2 and 3.
    config.mask.strength = 0.1
    config.mask.num_samples = 10  # of perturbed and imle; each costs a hard top-k forward and two backward

    # RigL (method rigl) with the paper's values: the share that it drops at first, and the share of training it rewires
    # in.
    config.rigl = ml_collections.ConfigDict()
    config.rigl.drop = 0.3
    config.rigl.until = 0.75

    # Top-KAST (method topkast): the share of weights with a gradient, and their penalty.
    config.topkast = ml_collections.ConfigDict()
    config.topkast.backward_density = 0.5
    config.topkast.penalty = 1e-4

    # Soft threshold reparameterization (method str): the decay of weights and thresholds makes weights sparse.
    config.str = ml_collections.ConfigDict()
    config.str.weight_decay = 1e-3
    config.str.initial = -5.0  # the threshold starts at the sigmoid of this

    # Hard concrete gates (method hard_concrete).
    config.hard_concrete = ml_collections.ConfigDict()
    config.hard_concrete.learning_rate = 0.02  # Adam's, for the gates
    config.hard_concrete.multiplier_rate = 0.3  # for the multipliers, by gradient ascent
    config.hard_concrete.damping = 100.0  # the weight of the squared excess, which damps their oscillation

    # Keeping.
    config.checkpoint_every = 5  # epochs; a kill loses no more
    config.tensorboard = False  # True: curves and histograms, in WORKDIR/tensorboard
    config.export_params = False  # True: the parameters at the end, in params.npz

    config.update_from_flattened_dict(VARIANTS[variant])
    if config.network != "mlp":
        _make_images(config)
    if config.network == "vit":
        _make_transformer(config)
    if config.network == "resnet":
        _make_resnet(config)
    return config


def _make_images(config: ml_collections.ConfigDict) -> None:
    """Changes a config to another network than the MLP, on images of CIFAR-100 and with one budget."""
    for field in ("hidden", "prune_layers", "inputs", "initialisation"):
        del config[field]
    config.input = ml_collections.ConfigDict(
        {"recipe": "crop_flip", "size": 32, "augment_on": "device", "workers": 0, "prefetch": 4}
    )
    config.update({"dataset": "cifar100", "validation_size": 5000, "seeds": (0, 1, 2), "budget": "network"})


def _make_resnet(config: ml_collections.ConfigDict) -> None:
    """Changes a config to ResNet-20 (He et al. 2016) for a GPU."""
    config.model = ml_collections.ConfigDict(
        {
            "depth": 20,  # 6 n + 2, for n blocks in each of three stages
            "width": 16,  # the channels of the first stage; the others have two and four times as many
            "dtype": "float32",  # or bfloat16: of the factors of convolutions alone
            # Before an evaluation the norms are measured anew on so many training images, with the weights that are
            # evaluated.
            "statistics_images": 2048,
        }
    )
    config.update({"optimizer": {"momentum": 0.9, "learning_rate": 0.1, "schedule": "cosine"}})
    # Outside the momentum: as 5e-4 within it.
    config.optimizer.weight_decay = 5e-3
    config.optimizer.decayed = "matrices"
    # Runs that differ in these numbers alone share a compiled program.
    config.arguments = ("optimizer.learning_rate", "lam.start", "density_schedule.end")


def _make_transformer(config: ml_collections.ConfigDict) -> None:
    """Changes a config to a vision transformer for 2 CPU cores on the 20 coarse labels."""
    del config["epochs"]
    config.label = "coarse_label"
    config.steps_per_dispatch = 1  # more of them at once are slower on CPUs
    config.model = ml_collections.ConfigDict(
        {
            "variant": "mu/8",  # 16 patches
            "width": 64,
            "depth": 2,
            "mlp_dim": 256,
            "num_heads": 2,
            "pool": "gap",
            "dtype": "float32",
            "remat": False,
        }
    )
    config.optimizer.warmup_steps = 100
    config.update(
        {
            "batch_size": 64,
            "steps": 1600,
            "eval_every": 800,
            "eval_batch_size": 500,
            "checkpoint_every": 800,
            "optimizer": {"name": "adam", "momentum": 0.9, "learning_rate": 1e-3, "schedule": "cosine"},
        }
    )
