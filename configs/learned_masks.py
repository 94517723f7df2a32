"""Masks of the pointwise convolutions of EfficientNet-Lite0 with frozen weights, on CIFAR-100.

    python -m experiments.learned_masks --config=configs/learned_masks.py:method=dense --workdir=/tmp/dense
    python -m experiments.learned_masks --config=configs/learned_masks.py:method=learned,pattern=2:4 \\
        --workdir=/tmp/learned --config.pretrained=/tmp/dense/params.npz

The part after the colon sets the method, one of METHODS in experiments/learned_masks/experiment.py, and the pattern,
one of PATTERNS there; --config.FIELD=VALUE then sets any field. The stages in front are computed once and kept
(experiments/vision/features.py). `python -m experiments.learned_masks.suite --out=DIR` trains all of it.
"""

import ml_collections
from ml_collections import config_dict

from experiments.core.config import parse_options
from experiments.learned_masks.experiment import METHODS, PATTERNS
from experiments.vision.efficientnet import STAGE_5

OPTIONS = {"method": "learned", "pattern": "2:4"}


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """Returns the config with the OPTIONS in `argument`, such as "method=wanda,pattern=half"."""
    options = parse_options(argument, OPTIONS, {"method": METHODS, "pattern": PATTERNS})
    steps = {"dense": 500, "magnitude": 1, "wanda": 1}.get(options["method"], 300)
    config = ml_collections.ConfigDict()

    # Data.
    config.dataset = "cifar100"
    config.data_dir = config_dict.placeholder(str)  # else $TFDS_DATA_DIR, ../shared/tfds, TFDS's own
    config.download = True  # whether to download a data set of TFDS that is not in data_dir
    # The images to evaluate on; or "validation": the last training images, held out. On test images a run ends with the
    # accuracies of experiments/learned_masks/refit.py, too.
    config.split = "test"
    config.validation_size = 5000
    config.features = ml_collections.ConfigDict()
    config.features.network = "efficientnet_lite0"
    config.features.size = 64  # pixels
    config.features.layer = STAGE_5
    config.features.directory = config_dict.placeholder(str)  # the directory that keeps them, else runs/features

    # Training. Seeds differ in the order of the images and in the gates.
    config.seeds = (0,)
    config.batch_size = 128
    config.steps = steps
    config.steps_per_dispatch = min(10, steps)
    config.eval_every = steps
    config.eval_batch_size = 1000
    config.checkpoint_every = steps
    config.optimizer = ml_collections.ConfigDict()
    config.optimizer.name = "adam"
    config.optimizer.momentum = 0.9
    config.optimizer.learning_rate = 1e-3 if options["method"] == "dense" else 3e-2
    config.optimizer.schedule = "cosine"

    # The mask.
    config.pretrained = "" if options["method"] == "dense" else "params.npz"  # that a run with method=dense exports
    config.export_params = options["method"] == "dense"
    config.mask = ml_collections.ConfigDict()
    config.mask.method = options["method"]
    config.mask.pattern = options["pattern"]
    config.mask.lam = ml_collections.ConfigDict()  # in units of the root mean square of a matrix's first scores
    config.mask.lam.schedule = "constant" if options["method"] == "learned" else "geometric"
    config.mask.lam.start = 1.0
    config.mask.lam.end = 1e-2
    config.mask.temperature = 2 / 3  # gumbel: of the gates, as in Louizos et al.
    config.mask.penalty = 100.0  # gumbel: the weight of the squared difference of the share that is open
    config.tensorboard = False
    return config
