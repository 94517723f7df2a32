"""What the paper leaves open: the scale of inputs, how kernels start, and all that may change how its lam does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from etils import epy

from experiments.core.input.dataset import Data

with epy.lazy_imports():  # --help does without it
    from jax.nn import initializers

# Pixels x in [0, 255] become (x - shift) / scale.
INPUTS: dict[str, Callable[[Data], tuple[float, float]]] = {
    "standardised": Data.pixel_mean_and_std,
    "unit": lambda data: (0.0, 255.0),  # in [0, 1]
    "symmetric": lambda data: (127.5, 127.5),  # in [-1, 1]
    "raw": lambda data: (0.0, 1.0),
}
INITIALISATIONS: dict[str, Callable[[], initializers.Initializer]] = {
    "lecun_normal": lambda: initializers.lecun_normal(),
    "glorot_uniform": lambda: initializers.glorot_uniform(),
    "torch": lambda: initializers.variance_scaling(1 / 3, "fan_in", "uniform"),  # within 1 / sqrt(inputs)
    "normal_0.1": lambda: initializers.normal(0.1),
    "normal_0.01": lambda: initializers.normal(0.01),
}

# Variants of the network, its training and the budget: fields of the config, by what reports call them.
OPEN: dict[str, dict[str, Any]] = {
    "as elsewhere": {},
    "inputs in [0, 1]": {"inputs": "unit"},
    "inputs in [-1, 1]": {"inputs": "symmetric"},
    "inputs from 0 to 255": {"inputs": "raw"},
    "Glorot-uniform": {"initialisation": "glorot_uniform"},
    "torch's initialisation": {"initialisation": "torch"},
    "normal, 0.1": {"initialisation": "normal_0.1"},
    "normal, 0.01": {"initialisation": "normal_0.01"},
    "momentum 0.9": {"optimizer.momentum": 0.9},
    "gradient / 10 (mean over classes)": {"optimizer.learning_rate": 1e-3},
    "a budget for each unit": {"budget": "row"},
}
# Variants of the operator alone, to be compared with hard top-k as in the first above.
OF_OPERATOR: dict[str, dict[str, Any]] = {
    "lam times the number of weights": {"lam_times_size": True},
    "lam times the number of weights, in full": {"lam_times_size": True, "epochs": 30, "seeds": tuple(range(10))},
    "weights times the mask of |w|": {"form": "mask"},
    "weights times the mask of w^2": {"form": "mask_of_squares"},
    "no gradient of the selection": {"form": "stop_gradient"},
    "the published code's Jacobian": {"form": "published_jacobian"},
}


def in_name(variant: str) -> str:
    """`inputs-in-0-1` of `inputs in [0, 1]`, as names of runs have it."""
    return "-".join("".join(letter if letter.isalnum() else " " for letter in variant).split())
