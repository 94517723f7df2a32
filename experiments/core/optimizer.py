"""Optimizers by config."""

import ml_collections
import optax

from experiments.core.config import require, require_one_of

NAMES = ("sgd", "adam")


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks `config.optimizer`."""
    optimizer = config.optimizer
    require_one_of("optimizer.name", optimizer.name, NAMES)
    require(optimizer.learning_rate > 0, "optimizer.learning_rate", optimizer.learning_rate, "positive")
    require(0 <= optimizer.momentum < 1, "optimizer.momentum", optimizer.momentum, "in [0, 1)")


def make(config: ml_collections.ConfigDict) -> optax.GradientTransformation:
    """SGD, with momentum if that is not 0, or Adam (whose b1 is the momentum)."""
    optimizer = config.optimizer
    if optimizer.name == "sgd":
        return optax.sgd(optimizer.learning_rate, momentum=optimizer.momentum or None)
    return optax.adam(optimizer.learning_rate, b1=optimizer.momentum)
