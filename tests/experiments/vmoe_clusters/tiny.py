"""The task in little, on one device."""

from typing import Any

import ml_collections

from configs.vmoe_clusters import get_config
from tests.experiments.support import set_fields

TINY = {
    "task.tokens": 12,
    "task.experts": 6,
    "task.width": 8,
    "task.outputs": 4,
    "task.groups": 8,
    "router.capacity": 0,
    "steps": 40,
    "steps_per_dispatch": 20,
    "eval_every": 20,
    "checkpoint_every": 40,
    "optimizer.warmup_steps": 4,
    "seeds": (0, 1),
}


def tiny_config(router: str = "hard", **fields: Any) -> ml_collections.ConfigDict:
    """Six experts of four tokens each; `fields` by name, with `__` for the dots."""
    config = get_config(f"router={router}")
    set_fields(config, fields, TINY)
    return config
