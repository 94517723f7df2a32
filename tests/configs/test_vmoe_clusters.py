"""The task of clusters: a sound config for every router."""

import pytest

from configs.vmoe_clusters import get_config
from experiments.core.errors import UsageError
from experiments.core.training import train
from experiments.vmoe.router_kinds import Shape
from experiments.vmoe_clusters.experiment import RECIPE, routing_shape
from experiments.vmoe_clusters.kinds import BEST, NAMES


def test_every_router_has_a_config():
    for router in NAMES:
        config = get_config(f"router={router}")
        train.check_fields(RECIPE, config)
        capacity = 25 if router in (BEST, "hard") else 50
        assert routing_shape(config) == Shape(tokens=400, k=25, capacity=capacity)
        assert (config.task.experts, config.optimizer.weight_decay) == (32, 0)
    with pytest.raises(UsageError, match="router=soft is not allowed: it must be one of best, hard, relaxed"):
        get_config("router=soft")
