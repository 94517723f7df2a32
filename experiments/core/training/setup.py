"""Lengths, devices, model and axis of seeds, which follow from a config and its data before any array is made."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import ml_collections
from jax.sharding import NamedSharding

from experiments.core.input.dataset import Data
from experiments.core.training import mesh as mesh_lib
from experiments.core.training.experiment import Recipe
from experiments.core.training.plan import Plan


class Setup:
    """The basis of every part of the trainer.

    Attributes:
      config: the valid config of the run.
      data: what it trains and evaluates on.
      plan: its lengths.
      mesh: its devices.
      experiment: its model and loss, as the recipe builds them.
      seed_axis: whether parameters and metrics have the leading axis S. A large model trains alone, and goes without.
    """

    def __init__(
        self,
        recipe: Recipe,
        config: ml_collections.ConfigDict,
        data: Data,
        devices: Sequence[jax.Device] | None = None,
    ):
        """Builds the experiment for `devices`, which may be a compiler's; for those there are if left out.

        Raises:
          UsageError: data and config do not fit.
        """
        self.config, self.data = config, data
        self.plan = Plan.of(config, data.num_train)
        self.mesh = mesh_lib.make(config, devices)
        self.experiment = recipe.build(config, data)
        self.seed_axis = self.plan.unit == "epoch" or len(config.seeds) > 1

    @functools.cached_property
    def everywhere(self) -> NamedSharding:
        """The same on every device."""
        return mesh_lib.replicated(self.mesh)

    def over_seeds(self, function: Callable[..., Any], in_axes: Any = 0) -> Callable[..., Any]:
        """Returns `function`, of one seed, for arguments that have the axis S where `in_axes` is 0, if there is one."""
        return jax.vmap(function, in_axes) if self.seed_axis else function
