"""A task where routing decides: tokens of overlapping clusters, a linear map for each, and as many linear experts.

    python -m experiments.vmoe_clusters --config=configs/vmoe_clusters.py:router=relaxed --workdir=/tmp/relaxed \\
        --config.task.noise=0.3

The part after the colon is the router, one of NAMES in experiments/vmoe_clusters/kinds.py; --config.FIELD=VALUE then
sets any field. The routing problem has the size of the paper's: n = 400 tokens and 32 experts, each of which takes k =
25, so that every token can have its two. The best assignment is known (experiments/vmoe_clusters/task.py), and
`router=best` uses it. Nothing is downloaded: problem, tokens and parameters follow from the seed.

`make vmoe-clusters` trains every router at several noises; results/vmoe_clusters/table.md has what to expect.
"""

import ml_collections

from experiments.core.config import parse_options
from experiments.vmoe.router_kinds import ROUTERS
from experiments.vmoe_clusters.kinds import BEST, NAMES

OPTIONS = {"router": "relaxed"}


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """Returns the task with the router in `argument`, such as "router=hard"."""
    name = parse_options(argument, OPTIONS, {"router": NAMES})["router"]
    config = ml_collections.ConfigDict()

    # The task.
    config.dataset = "clusters"
    config.split = "test"  # or "validation": other groups; hyper-parameters are chosen with other seeds, too
    config.validation_size = 1  # not used: this data set is not divided
    config.task = ml_collections.ConfigDict()
    config.task.tokens = 400  # tokens of a group, each in two clusters
    config.task.experts = 32  # as many as clusters
    config.task.width = 32  # the width of a token, at least the number of clusters
    config.task.outputs = 8
    config.task.noise = 0.3  # the noise of a token in each direction; centres have the norm 1
    config.task.groups = 16  # groups to evaluate on

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
    config.router.score = "logits" if name == BEST else ROUTERS[name].score  # or gates: what tokens compete by
    config.router.p = 2.0
    config.router.lam = ml_collections.ConfigDict()  # in the units of the score
    config.router.lam.schedule = "constant"
    config.router.lam.start = 1.0
    config.router.lam.end = 1.0
    config.router.hard_after = 1.0
    config.router.dykstra = 0
    config.router.limit = 2.0  # balanced: the most experts of a token
    if name != BEST:
        config.router.update_from_flattened_dict(dict(ROUTERS[name].fields))

    config.tensorboard = False
    return config
