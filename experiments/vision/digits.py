"""The data and the network of the demos: scikit-learn's digits, which need no download, and two blocks."""

from typing import Any

# Fields of the config.
DIGITS: dict[str, Any] = {
    "dataset": "digits",
    "validation_size": 300,
    "input.size": 8,
    "input.recipe": "none",
    "model.variant": "mu/2",
    "model.width": 32,
    "model.depth": 2,
    "model.mlp_dim": 64,
    "eval_batch_size": 120,
}
