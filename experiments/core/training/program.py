"""The programs that a run compiles, for which shapes on which devices: all of it follows from its `Setup`.

No array is made and no device asked for. So what the trainer compiles for the devices at hand can be compiled as well
for devices that only the compiler knows (`jax.experimental.topologies`): the same functions, shapes and places.
"""

from typing import Any

import jax
import numpy as np
from jax.stages import Traced

from experiments.core.training import evaluation, feed, step
from experiments.core.training import mesh as mesh_lib
from experiments.core.training.experiment import Setup


class Program:
    """The functions of a run and the shapes of their arguments.

    Attributes:
      setup: of the run.
      state: the shapes, types and places of the state.
      feed: where batches come from, not yet open.
      evaluate: the evaluation, not yet compiled.
    """

    def __init__(self, setup: Setup):
        """Makes the shapes of the state and of the data; `UsageError` if pretrained parameters do not fit."""
        self.setup = setup
        self.feed, self.evaluate = feed.make(setup), evaluation.make(setup)
        with jax.set_mesh(setup.mesh):
            self.state = step.abstract(setup.experiment, self.seeds, setup.mesh)

    @property
    def seeds(self) -> jax.ShapeDtypeStruct:
        """[S], or a scalar."""
        shape = (len(self.setup.config.seeds),) if self.setup.seed_axis else ()
        return mesh_lib.like(shape, np.dtype(np.int32), self.setup.everywhere)

    def trace_train(self) -> Traced:
        """The train step, which takes the state: `train(state, seeds, examples, chunk, first_step, arguments)`.

        It returns the next state, and metrics.
        """
        setup, accumulate = self.setup, self.setup.config.get("accumulate", 1)
        clip_norm = setup.config.optimizer.get("clip_norm", 0.0)

        def train(state: Any, seeds: Any, examples: Any, chunk: Any, first_step: Any, arguments: Any) -> Any:
            experiment, total_steps = setup.experiment_of(arguments), setup.plan.total_steps
            step_of = step.make_train(experiment, total_steps, self.feed.take, accumulate, clip_norm)
            return step_of(state, seeds, examples, chunk, first_step)

        shardings = jax.tree.map(lambda leaf: leaf.sharding, self.state), setup.everywhere
        with jax.set_mesh(setup.mesh):
            return jax.jit(train, donate_argnums=0, out_shardings=shardings).trace(
                self.state, self.seeds, *self.feed.shapes, np.int32(0), setup.arguments
            )

    def trace_evaluation(self) -> Traced:
        """A call of the evaluation."""
        with jax.set_mesh(self.setup.mesh):
            return self.evaluate.trace(self.state.params)
