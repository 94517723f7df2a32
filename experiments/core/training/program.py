"""What a run compiles, and for which shapes on which devices: all of it follows from the config and the data's shapes.

No array is made and no device asked for. So what the trainer compiles for the devices at hand can be compiled as well
for devices that only the compiler knows (`jax.experimental.topologies`): the same functions, shapes and places.
"""

from collections.abc import Sequence
from typing import Any

import jax
import ml_collections
import numpy as np
from jax.stages import Traced

from experiments.core.input.dataset import Data
from experiments.core.training import evaluation, feed, plan, step
from experiments.core.training import mesh as mesh_lib
from experiments.core.training import state as state_lib
from experiments.core.training.experiment import Batch, Params, Recipe


class Program:
    """The functions of a run and the shapes of their arguments.

    Attributes:
      plan: the lengths.
      mesh: of the devices.
      experiment: as the recipe builds it.
      seed_axis: whether arrays have the axis S.
      state: the shapes, types and places of the state.
      feed: those of what the train step gets besides.
    """

    def __init__(
        self,
        recipe: Recipe,
        config: ml_collections.ConfigDict,
        data: Data,
        devices: Sequence[jax.Device] | None = None,
    ):
        """Of a valid config.

        Args:
          recipe: of the experiment.
          config: valid on as many devices.
          data: of which the shapes, types and numbers count alone, but for what the experiment computes of them.
          devices: to compile for; those there are if left out.

        Raises:
          UsageError: data and config do not fit.
        """
        self.config, self.data = config, data
        self.plan = plan.Plan.of(config, data.num_train)
        self.mesh = mesh_lib.make(config, devices)
        self.experiment = recipe.build(config, data)
        # A large model trains alone, and goes without the axis.
        self.seed_axis = self.plan.unit == "epoch" or len(config.seeds) > 1
        self.feed = feed.shapes(config, data, self.plan.steps_per_dispatch, self.mesh, seed_axis=self.seed_axis)
        with jax.set_mesh(self.mesh):
            self.state = state_lib.abstract(self.experiment, self.seeds, self.mesh)

    @property
    def seeds(self) -> jax.ShapeDtypeStruct:
        """[S], or a scalar."""
        shape = (len(self.config.seeds),) if self.seed_axis else ()
        return mesh_lib.like(shape, np.dtype(np.int32), mesh_lib.replicated(self.mesh))

    def make_evaluate(self) -> evaluation.Evaluate:
        """The evaluation; it reads no data before it is compiled."""
        return evaluation.make(self.config, self.data, self.experiment, self.mesh, seed_axis=self.seed_axis)

    def trace_train(self) -> Traced:
        """The train step, `train(state, seeds, examples, chunk, first_step) -> state, metrics`; it takes the state."""
        everywhere = mesh_lib.replicated(self.mesh)
        train = jax.jit(
            step.make_train(self.experiment, self.plan.total_steps, self.feed.take, self.config.get("accumulate", 1)),
            donate_argnums=0,
            out_shardings=(jax.tree.map(lambda leaf: leaf.sharding, self.state), everywhere),
        )
        with jax.set_mesh(self.mesh):
            return train.trace(self.state, self.seeds, self.feed.examples, self.feed.chunk, np.int32(0))

    def trace_evaluation(self) -> Traced:
        """A call of the evaluation."""
        with jax.set_mesh(self.mesh):
            return self.make_evaluate().trace(self.state.params)

    def first_batch(self) -> tuple[Params, Batch]:
        """Shapes of the parameters and of a batch of one seed, as the loss sees them."""

        def of(examples: Any, chunk: Any) -> Batch:
            return step.first_batch(self.experiment, self.feed.take, examples, chunk, seed_axis=self.seed_axis)

        batch = jax.eval_shape(of, self.feed.examples, self.feed.chunk)
        leading = 1 if self.seed_axis else 0
        params = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[leading:], leaf.dtype), self.state.params)
        return params, batch
