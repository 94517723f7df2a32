"""A task where routing decides: tokens of overlapping clusters, a linear map for each, and as many linear experts.

    python -m experiments.vmoe_clusters --config=configs/vmoe_clusters.py:router=relaxed --workdir=/tmp/relaxed \\
        --config.task.noise=0.3

The part after the colon is the router, one of NAMES in experiments/vmoe_clusters/kinds.py; any field is then set by
--config.FIELD=VALUE. The routing problem has the size of the paper's, n = 400 tokens and 32 experts, of which each
takes k = 25, so that every token can have its two. The best assignment is known (experiments/vmoe_clusters/task.py),
and `router=best` is given it. Nothing is downloaded: problem, tokens and parameters follow from the seed.

`make vmoe-clusters` trains every router at several noises; results/vmoe_clusters/table.md has what to expect.
"""

import ml_collections

from experiments.core.config import parse_options
from experiments.vmoe.router_kinds import ROUTERS
from experiments.vmoe_clusters.kinds import BEST, NAMES

OPTIONS = {"router": "relaxed"}


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """The task with the router that `argument` names: "router=hard"."""
    name = parse_options(argument, OPTIONS, {"router": NAMES})["router"]
    config = ml_collections.ConfigDict()

    # The task.
    config.dataset = "clusters"
    config.split = "test"  # or "validation": other groups; hyper-parameters are chosen on other seeds as well
    config.validation_size = 1  # of data sets that are divided
    config.task = ml_collections.ConfigDict()
    config.task.tokens = 400  # of a group, each in two clusters
    config.task.experts = 32  # and as many clusters
    config.task.width = 32  # of a token, at least as many as there are clusters
    config.task.outputs = 8
    config.task.noise = 0.3  # of a token, in each direction; its centres have the norm 1
    config.task.groups = 16  # to evaluate on

    # Training.
    config.seeds = (0,)
    config.batch_size = 1  # groups
    config.steps = 1000
    config.steps_per_dispatch = 25
    config.eval_every = 50
    config.checkpoint_every = 1000
    config.optimizer = ml_collections.ConfigDict()
    config.optimizer.name = "adam"
    config.optimizer.momentum = 0.9
    config.optimizer.b2 = 0.999
    config.optimizer.learning_rate = 3e-2
    config.optimizer.schedule = "linear"
    config.optimizer.warmup_steps = 50
    config.optimizer.weight_decay = 0.0

    # The router, as in configs/vmoe.py.
    config.router = ml_collections.ConfigDict()
    config.router.name = name
    config.router.capacity = 0 if name in (BEST, "hard") else 50  # slots of an expert; 0: k
    config.router.score = "logits" if name == BEST else ROUTERS[name].score  # or gates: what the tokens compete by
    config.router.p = 2.0
    config.router.lam = ml_collections.ConfigDict()  # in the units of the score
    config.router.lam.schedule = "constant"
    config.router.lam.start = 1.0
    config.router.lam.end = 1.0
    config.router.hard_after = 1.0
    config.router.dykstra = 0
    config.router.limit = 2.0  # experts of a token at most, of balanced
    if name != BEST:
        config.router.update_from_flattened_dict(dict(ROUTERS[name].fields))

    config.tensorboard = False
    return config
