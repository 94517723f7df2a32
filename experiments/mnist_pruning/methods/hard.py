"""The dense network, and a hard top-k in magnitude with its own gradient or with that of the identity."""

import ml_collections

import ops
from experiments.mnist_pruning.methods.method import Method, PruningMethod, by_number
from experiments.mnist_pruning.methods.schedules import DENSITY_SCHEDULES, FALLING


def _dense(config: ml_collections.ConfigDict, total_steps: int) -> Method:
    """No pruning."""
    del config, total_steps
    return Method(weights=lambda vector, state, progress, key: vector)


def _hard(config: ml_collections.ConfigDict, total_steps: int) -> Method:
    """Hard top-k in magnitude; only the entries kept have a gradient."""
    del total_steps
    return by_number(ops.hard_topk_mag, config)


def _identity_straight_through(config: ml_collections.ConfigDict, total_steps: int) -> Method:
    """Hard top-k in magnitude, whose gradient goes to all weights as if it were the identity (Bengio et al. 2013)."""
    del total_steps
    return by_number(lambda w, k: ops.straight_through(ops.hard_topk_mag(w, k), w), config)


DENSE = PruningMethod(_dense)
HARD = PruningMethod(_hard, reads=FALLING, density_schedules=DENSITY_SCHEDULES)
IDENTITY_STRAIGHT_THROUGH = PruningMethod(
    _identity_straight_through, reads=FALLING, density_schedules=DENSITY_SCHEDULES
)
