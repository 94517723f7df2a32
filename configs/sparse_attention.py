"""A small transformer reads k keys a query, chosen by an indexer: how does the indexer learn which?

    python -m experiments.sparse_attention --config=configs/sparse_attention.py --workdir=/tmp/dense
    python -m experiments.sparse_attention --config=configs/sparse_attention.py:selector=straight_through \\
        --config.pretrained=/tmp/dense/params.npz --workdir=/tmp/straight_through

The first trains a dense model, which the second goes on with. The parts after the colon are the selector, one of
SELECTORS in experiments/sparse_attention/selectors.py, and the task: recall, several or text
(experiments/sparse_attention/task.py); --config.FIELD=VALUE then sets any field. Nothing is downloaded.

`make sparse-attention` trains all selectors; results/sparse_attention/README.md has what to expect.
"""

import ml_collections

from experiments.core.config import parse_options
from experiments.sparse_attention import task
from experiments.sparse_attention.selectors import SELECTORS

OPTIONS = {"selector": "dense", "task": "recall"}
# Selectors whose strength falls: from and to.
FALLING = {
    "support": (6.0, 1.0),
    "relaxed": (4.0, 0.05),
    "lapsum": (1.0, 0.02),
}


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """Returns the config with the OPTIONS in `argument`, such as "selector=support,task=text"."""
    options = parse_options(argument, OPTIONS, {"selector": SELECTORS, "task": task.NAMES})
    selector, is_text, is_dense = options["selector"], options["task"] == "text", options["selector"] == "dense"
    config = ml_collections.ConfigDict()

    # The task.
    config.dataset = options["task"]
    config.split = "test"  # or "validation": other examples; hyper-parameters are chosen with other seeds, too
    config.validation_size = 1  # not used: this data set is not divided
    config.task = ml_collections.ConfigDict()
    config.task.name = options["task"]
    config.task.length = 128 if is_text else 64  # tokens of an example
    config.task.examples = 128  # to evaluate on

    # The model.
    config.model = ml_collections.ConfigDict()
    config.model.width = 64
    config.model.layers = 2
    config.model.heads = 2
    config.model.index_width = 16  # of the indexer's queries and keys
    config.model.sparse = (0, 1) if is_text else (1,)  # the layers that read selected keys
    config.model.previous = not is_text  # whether a token of the second layer knows the one before it

    # Training.
    config.seeds = (0,)
    config.batch_size = 8 if is_text else 16
    config.steps = (1500 if is_text else 800) if is_dense else (600 if is_text else 300)
    config.steps_per_dispatch = 50
    config.eval_every = config.steps if is_dense else 50
    config.checkpoint_every = config.steps
    config.optimizer = ml_collections.ConfigDict()
    config.optimizer.name = "adam"
    config.optimizer.momentum = 0.9
    config.optimizer.b2 = 0.99
    config.optimizer.learning_rate = 3e-3 if is_dense else 1e-3
    config.optimizer.schedule = "linear"
    config.optimizer.warmup_steps = 50
    config.optimizer.clip_norm = 1.0
    config.trained = "all"  # or "indexer" alone
    # What a dense run of the same task and seeds exports; for the dense run of several, one of recall.
    config.pretrained = "" if is_dense and options["task"] != "several" else "params.npz"
    config.export_params = is_dense

    # The selector.
    config.selector = ml_collections.ConfigDict()
    config.selector.name = selector
    config.selector.k = 2  # keys of a query at test
    config.selector.spare = 6  # keys beyond k that may be read in training, where not all are
    config.selector.weight = 1.0 if SELECTORS[selector].taught else 0.0  # of the loss that teaches the scores
    # In the units of the scores, or a number of keys beyond k (support), or a factor of the scores (kl,
    # kl_sparse, added).
    config.selector.lam = ml_collections.ConfigDict()
    config.selector.lam.schedule = "geometric" if selector in FALLING else "constant"
    config.selector.lam.start, config.selector.lam.end = FALLING.get(selector, (1.0, 1.0))
    config.arguments = ("optimizer.learning_rate", "selector.lam.start", "selector.lam.end", "selector.weight")
    config.tensorboard = False
    return config
