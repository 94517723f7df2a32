"""Pruning an MLP on MNIST while it trains: Section 6, Figure 5 and Appendix C.1 of the paper.

    python -m experiments.mnist_pruning \\
        --config=configs/mnist_pruning.py:annealed --workdir=/tmp/annealed --config.seeds="(0, 1, 2)"

The part after the colon is one of VARIANTS below (`relaxed` if left out); any field is then set by
--config.FIELD=VALUE. The paper fixes the network, SGD with batches of 128 and a constant learning
rate of 1e-2, 30 epochs, 10 % kept in each matrix and lam = 1e-4; it leaves the initialisation and
the scale of the inputs open (here LeCun-normal, and standardised).

With `network=vit`, or `annealed,network=vit` and the like, a small vision transformer is pruned instead, on CIFAR-100's
coarse labels and from scratch, which the paper does not do: the end of this file has its fields.

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

# Every method in the paper's setting, with a density schedule that it can follow; and `annealed`, where the relaxed
# operator starts close to the identity, so dense, and hardens. Only rescaled it keeps the weights' size at such a lam.
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
    """The paper's setting, changed where the variant, or the network, differs from it."""
    variant, *rest = argument.split(",") if "=" not in argument.partition(",")[0] else ("relaxed", argument)
    if variant not in VARIANTS:
        raise UsageError(f"variant {variant!r} is not one of " + ", ".join(VARIANTS))
    options = parse_options(",".join(rest), {"network": "mlp"}, {"network": NETWORKS})
    config = ml_collections.ConfigDict()

    # Data: any image classification set of TFDS (mnist, fashion_mnist, kmnist, ...), one of your own
    # (docs/how_to/data.md), or "digits", which scikit-learn brings along.
    config.dataset = "mnist"
    config.data_dir = config_dict.placeholder(str)  # else $TFDS_DATA_DIR, ../shared/tfds, TFDS's own
    config.download = True  # a data set of TFDS that is not in data_dir
    config.split = "test"  # evaluate on it; or "validation": the last training images, held out
    config.validation_size = 10_000

    # Training. The seeds train side by side, each with its own data and random numbers. Their number changes the last
    # bits: CPUs sum the gradients of biases in another order for three seeds than for four or more. A slope of 1 / lam
    # multiplies that: up to 13.6 points of test error at lam = 1e-4, 0.2 with lam annealed
    # (results/mnist_pruning/batching.json).
    config.seeds = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
    config.epochs = 30
    config.batch_size = 128
    config.optimizer = ml_collections.ConfigDict()
    config.optimizer.name = "sgd"
    config.optimizer.learning_rate = 1e-2
    config.optimizer.momentum = 0.0
    config.optimizer.schedule = "constant"  # the paper's; or "cosine", down to 0

    # The network: the paper's MLP, with the widths of its hidden layers. Another one has other fields.
    config.network = options["network"]
    config.hidden = (32, 32)
    config.inputs = "standardised"  # or unit (in [0, 1]), symmetric (in [-1, 1]), raw (0 to 255); open in the paper
    config.initialisation = "lecun_normal"  # or glorot_uniform, torch, normal_0.1, normal_0.01; open in the paper, too

    # Pruning: which weight matrices, numbered from 1, and how much of each is kept.
    config.method = "relaxed"
    config.prune_layers = (1, 2, 3)  # the paper's text; its slides say (2, 3)
    config.density = 0.1
    config.budget = "matrix"  # each has one of its own; or "network", all share one; or "row", each unit has one
    config.density_schedule = ml_collections.ConfigDict()
    config.density_schedule.name = "constant"  # or "cubic", from 1 down to it, for the methods that can
    config.density_schedule.begin = 0.0  # shares of training between which it falls
    config.density_schedule.end = 0.7
    config.density_schedule.every = 100  # steps between two masks (methods gradual and rigl)

    # The relaxed operator (methods relaxed and straight_through).
    config.p = 2.0
    config.lam = ml_collections.ConfigDict()
    # "constant" (start); or "geometric": from start to end, step by step; or "support": the lam that leaves a given
    # number of weights other than 0, all at first, then ever fewer by a cubic schedule, until hard_after.
    config.lam.schedule = "constant"
    config.lam.start = 1e-4
    config.lam.end = 1e-4
    # True: a selected weight keeps its value, as in the published code, and the operator tends to the identity as lam
    # grows. False: it is shrunk by a factor such as 1 / (1 + lam), as in the paper.
    config.debias = False
    # Other readings of the paper: lam times the number of weights (a regulariser that is a mean, not a sum); the
    # weights times the relaxed mask of their magnitudes or squares; or no derivative of which weights are selected,
    # or the one that the published code has.
    config.lam_times_size = False
    config.form = "operator"  # or mask, mask_of_squares, stop_gradient, published_jacobian
    config.hard_after = 1.0  # share of training that lam's schedule takes; from then on the top-k is hard, 1: never

    # Entropic optimal transport (method ot_straight_through).
    config.ot = ml_collections.ConfigDict()
    config.ot.epsilon = 0.1

    # A relaxed mask (method mask_straight_through), of experiments/mnist_pruning/methods/masks.py. Those of the
    # literature are not sparse, so they serve as the gradient of a hard top-k only.
    config.mask = ml_collections.ConfigDict()
    config.mask.name = "sigmoid"
    # The operator's epsilon (entropic_ot; no unit), or its sigma (perturbed), lam (relaxed_p2, ...) or temperature, in
    # units of the weights, which here are about 0.04 in layer 1 and 0.2 in layers 2 and 3.
    config.mask.strength = 0.1
    config.mask.num_samples = 10  # of perturbed: each costs a hard top-k forward, and two backward

    # RigL (method rigl), at the paper's values: how much is dropped at first, and until when.
    config.rigl = ml_collections.ConfigDict()
    config.rigl.drop = 0.3
    config.rigl.until = 0.75

    # Top-KAST (method topkast): how much has a gradient, and the penalty of its weights.
    config.topkast = ml_collections.ConfigDict()
    config.topkast.backward_density = 0.5
    config.topkast.penalty = 1e-4

    # Soft threshold reparameterization (method str): the decay of weights and thresholds makes it sparse.
    config.str = ml_collections.ConfigDict()
    config.str.weight_decay = 1e-3
    config.str.initial = -5.0  # the threshold starts at sigmoid of this

    # Hard concrete gates (method hard_concrete).
    config.hard_concrete = ml_collections.ConfigDict()
    config.hard_concrete.learning_rate = 0.02  # of the gates, by Adam
    config.hard_concrete.multiplier_rate = 0.3  # of the multipliers, by gradient ascent
    config.hard_concrete.damping = 100.0  # of their oscillation: weight of the squared excess

    # Keeping.
    config.checkpoint_every = 5  # epochs: a kill loses at most these
    config.tensorboard = False  # True: curves, config, summary and histograms, in WORKDIR/tensorboard
    config.export_params = False  # of a single seed, the parameters at the end, in params.npz

    config.update_from_flattened_dict(VARIANTS[variant])
    if config.network == "vit":
        _make_transformer(config)
    return config


def _make_transformer(config: ml_collections.ConfigDict) -> None:
    """A vision transformer for 2 CPU cores, on the 20 coarse labels; every matrix is pruned but embeddings."""
    for field in ("hidden", "prune_layers", "inputs", "initialisation", "epochs"):
        del config[field]
    config.label = "coarse_label"
    config.steps_per_dispatch = 1  # more of them at once are slower on CPUs
    config.input = ml_collections.ConfigDict(
        {"recipe": "crop_flip", "size": 32, "augment_on": "device", "workers": 0, "prefetch": 4}
    )
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
            "dataset": "cifar100",
            "validation_size": 5000,
            "seeds": (0, 1, 2),
            "batch_size": 64,
            "steps": 1600,
            "eval_every": 800,
            "eval_batch_size": 500,
            "checkpoint_every": 800,
            "optimizer": {"name": "adam", "momentum": 0.9, "learning_rate": 1e-3, "schedule": "cosine"},
            "budget": "network",
        }
    )
