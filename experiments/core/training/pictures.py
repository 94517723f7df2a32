"""The images that an experiment makes of its parameters (`Experiment.pictures`)."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from experiments.core.training.experiment import Experiment, Params


def images(
    experiment: Experiment, params: Params, everywhere: NamedSharding, *, seed_axis: bool
) -> dict[str, np.ndarray]:
    """Those of the first seed, uint8 [N, H, W, C] by name; none where the experiment makes none.

    All processes take part, and each has them whole. What is not a number, as of a seed that diverged, is black.

    Args:
      experiment: whose they are.
      params: of one seed or, if there is a `seed_axis`, of several.
      everywhere: where all devices have the same.
      seed_axis: whether parameters have one, the first.
    """
    make = experiment.pictures
    if make is None:
        return {}

    def of_first(params: Params) -> dict[str, jax.Array]:
        first = jax.tree.map(lambda leaf: leaf[0], params) if seed_axis else params
        return jax.tree.map(lambda made: jnp.rint(255 * jnp.nan_to_num(made)).astype(jnp.uint8), make(first))

    return jax.device_get(jax.jit(of_first, out_shardings=everywhere)(params))
