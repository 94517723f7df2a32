"""What the paper leaves open of the network: the scale of its inputs, and how its kernels start."""

from collections.abc import Callable

from jax.nn import initializers

from experiments.core.input.dataset import Data

# Pixels x in [0, 255] become (x - shift) / scale.
INPUTS: dict[str, Callable[[Data], tuple[float, float]]] = {
    "standardised": Data.pixel_mean_and_std,
    "unit": lambda data: (0.0, 255.0),  # in [0, 1]
    "symmetric": lambda data: (127.5, 127.5),  # in [-1, 1]
    "raw": lambda data: (0.0, 1.0),
}
INITIALISATIONS: dict[str, initializers.Initializer] = {
    "lecun_normal": initializers.lecun_normal(),
    "glorot_uniform": initializers.glorot_uniform(),
    "torch": initializers.variance_scaling(1 / 3, "fan_in", "uniform"),  # within 1 / sqrt(inputs)
    "normal_0.1": initializers.normal(0.1),
    "normal_0.01": initializers.normal(0.01),
}
