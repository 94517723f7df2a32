"""The state of training, how it begins (fresh, or with pretrained parameters), and K steps of it as one function.

Several seeds are carried along a leading axis by `vmap`: ten small networks cost three times what one does. Where
`seeds` is a scalar there is no such axis. `S` seeds, `K` steps, `B` batch, `A` microbatches.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax
from jax.stages import Traced
from jax.tree_util import keystr, tree_flatten_with_path, tree_map_with_path

from experiments.core import config as config_lib
from experiments.core.errors import UsageError
from experiments.core.input.dataset import Data
from experiments.core.training import feed
from experiments.core.training import mesh as mesh_lib
from experiments.core.training.experiment import Batch, Experiment, Metrics, Params, Plan, Recipe

_AUGMENT = 2**31 - 1  # sets the key of augmentation apart from those that a loss derives by small numbers


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """All that training changes; every leaf has the leading axis S, if there is one."""

    params: Params
    opt_state: optax.OptState
    diverged: jax.Array  # bool: some loss or parameter has not been finite


def _check_pretrained(experiment: Experiment) -> None:
    model = jax.eval_shape(lambda: experiment.init(jax.random.key(0)))
    shapes = {keystr(path): leaf.shape for path, leaf in tree_flatten_with_path(model)[0]}
    for path, leaf in tree_flatten_with_path(experiment.pretrained)[0]:
        name = f"the pretrained parameter {keystr(path)}"
        if keystr(path) not in shapes:
            raise UsageError(f"{name} is not one of the model, which has {', '.join(shapes)}")
        shape = leaf.shape[1:] if experiment.pretrained_by_seed else leaf.shape
        if shape != shapes[keystr(path)]:
            raise UsageError(f"{name} has shape {shape}, in the model {shapes[keystr(path)]}")


def _augmented(experiment: Experiment, batch: Batch, step_key: jax.Array) -> Batch:
    if experiment.augment is None:
        return batch
    return batch | {"image": experiment.augment(jax.random.fold_in(step_key, _AUGMENT), batch["image"])}


def make_train(
    experiment: Experiment,
    total_steps: int,
    accumulate: int = 1,
    clip_norm: float = 0.0,
) -> Callable[..., tuple[TrainState, Metrics]]:
    """`train(state, seeds [S], examples, chunk, first_step) -> state, metrics`, each metric [S, K].

    `examples` and `chunk` are those of a feed; the leaves of the chunk begin with [S, K]. Where gradients are clipped
    to `clip_norm`, metrics have their norm before, and the share of steps that were clipped. Without an axis of seeds,
    here and in the results, S is left out.
    """
    gradient_of = _gradient(experiment, accumulate)

    def train_one(
        state: TrainState, seed: jax.Array, examples: Any, chunk: Any, first_step: jax.Array
    ) -> tuple[TrainState, Metrics]:
        key = jax.random.key(seed)

        def step(state: TrainState, at: tuple[jax.Array, Any]) -> tuple[TrainState, Metrics]:
            number, at_step = at
            step_key = jax.random.fold_in(key, number + 1)
            batch = _augmented(experiment, feed.take(examples, at_step), step_key)
            progress = number.astype(jnp.float32) / total_steps
            gradient, metrics = gradient_of(state.params, batch, step_key, progress)
            if clip_norm:
                norm = optax.tree.norm(gradient)
                metrics = {**metrics, "gradient_norm": norm, "clipped": norm > clip_norm}
            # Adam's bias correction in optax mixes types; everything else here holds to strict promotion.
            with jax.numpy_dtype_promotion("standard"):
                updates, opt_state = experiment.optimizer.update(gradient, state.opt_state, state.params)
            params = optax.apply_updates(state.params, updates)
            progress = (number + 1).astype(jnp.float32) / total_steps
            params, opt_state = experiment.after_update(params, opt_state, gradient, progress)
            return TrainState(params, opt_state, state.diverged), tree_map_with_path(_scalar, metrics)

        num_steps = jax.tree.leaves(chunk)[0].shape[0]
        steps = first_step + jnp.arange(num_steps, dtype=jnp.int32)
        if num_steps == 1:
            # On CPUs XLA runs a transformer's step half as fast inside a loop, even one of a single round.
            state, metrics = step(state, jax.tree.map(lambda leaf: leaf[0], (steps, chunk)))
            metrics = jax.tree.map(lambda value: value[None], metrics)
        else:
            state, metrics = jax.lax.scan(step, state, (steps, chunk))
        leaves = [metrics["loss"], *jax.tree.leaves(state.params)]
        finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in leaves]).all()
        return dataclasses.replace(state, diverged=state.diverged | ~finite), metrics

    def train(
        state: TrainState, seeds: jax.Array, examples: Any, chunk: Any, first_step: jax.Array
    ) -> tuple[TrainState, Metrics]:
        over_seeds = jax.vmap(train_one, in_axes=(0, 0, None, 0, None)) if seeds.ndim else train_one
        return over_seeds(state, seeds, examples, chunk, first_step)

    return train


def _scalar(path: Any, value: Any) -> jax.Array:
    """Checks that a metric is a scalar, and makes it float32, as a checkpoint keeps it."""
    if jnp.ndim(value):
        raise ValueError(f"metric {keystr(path)} of the loss has shape {value.shape}: it must be a scalar")
    return jnp.asarray(value, jnp.float32)


def _gradient(experiment: Experiment, accumulate: int) -> Callable[..., tuple[Params, Metrics]]:
    """The gradient and the metrics of a batch; means over `accumulate` equal parts of it, one after the other."""
    gradient_of = jax.grad(experiment.loss, has_aux=True)
    if accumulate == 1:
        return gradient_of

    def accumulated(params: Params, batch: Batch, key: jax.Array, progress: jax.Array) -> tuple[Params, Metrics]:
        def part(array: jax.Array) -> jax.Array:
            # Every A-th example, so that every device has its share of each part without moving any.
            size = array.shape[0] // accumulate
            return array.reshape(size, accumulate, *array.shape[1:]).swapaxes(0, 1)

        def add(total: Any, at: tuple[jax.Array, Batch]) -> tuple[Any, None]:
            number, microbatch = at
            new = gradient_of(params, microbatch, jax.random.fold_in(key, number), progress)
            return jax.tree.map(jnp.add, total, new), None

        parts = jax.tree.map(part, batch)
        shapes = jax.eval_shape(gradient_of, params, jax.tree.map(lambda array: array[0], parts), key, progress)
        zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
        total, _ = jax.lax.scan(add, zeros, (jnp.arange(accumulate, dtype=jnp.int32), parts))
        return jax.tree.map(lambda array: array / accumulate, total)

    return accumulated


class Program:
    """What follows from a config and its data: lengths, devices, model, the shapes of all arrays, the train step.

    No array is made and no device asked for. So what the trainer compiles for the devices at hand can be compiled as
    well for devices that only the compiler knows (`jax.experimental.topologies`): the same functions, shapes, places.

    `seed_axis` says whether parameters and metrics have the leading axis S. A large model trains alone, without it.
    `state` has the shapes, types and places of the state; the `feed` is not yet open.

    `arguments` are the numbers of the config that compiled programs take as arguments, by dotted name: those that
    config.arguments names, if it is there. Runs that differ in them alone then share their programs, which the cache
    keeps, where each would compile for longer than it trains.
    """

    def __init__(
        self,
        recipe: Recipe,
        config: ml_collections.ConfigDict,
        data: Data,
        devices: Sequence[jax.Device] | None = None,
    ):
        """Builds the experiment for `devices`, which may be a compiler's.

        Raises `UsageError` if the data, or pretrained parameters, do not fit.
        """
        self.recipe, self.config, self.data = recipe, config, data
        self.plan = Plan.of(config, data.num_train)
        self.mesh = mesh_lib.make(config, devices)
        self.everywhere = mesh_lib.replicated(self.mesh)
        self.experiment = recipe.build(config, data)
        self.seed_axis = self.plan.unit == "epoch" or len(config.seeds) > 1
        self.seeds = np.asarray(config.seeds if self.seed_axis else config.seeds[0], np.int32)
        fields = dict(config_lib.leaves(config.to_dict(), prefix=""))
        self.arguments = {name: np.float32(fields[name]) for name in config.get("arguments", ())}
        self.feed = feed.make(data, self.seeds, config.batch_size, self.plan.steps_per_dispatch, self.mesh)
        self._seeds = mesh_lib.like(self.seeds, self.everywhere)
        if jax.tree.leaves(self.experiment.pretrained):
            _check_pretrained(self.experiment)
        with jax.set_mesh(self.mesh):
            shapes = jax.eval_shape(lambda seeds: self._begin(seeds, None), self._seeds)
        self.state = jax.tree.map(
            mesh_lib.like, shapes, mesh_lib.state_shardings(self.mesh, shapes, leading=self.seeds.ndim)
        )

    def experiment_of(self, arguments: dict[str, jax.Array]) -> Experiment:
        """The experiment with other values, traced ones above all, of the numbers that are arguments."""
        if not arguments:
            return self.experiment
        config = self.config.copy_and_resolve_references()
        with config.unlocked(), config.ignore_type():
            config.update_from_flattened_dict(arguments)
        return self.recipe.build(config, self.data)

    def over_seeds(self, function: Callable[..., Any], in_axes: Any = 0) -> Callable[..., Any]:
        """Returns `function`, of one seed, for arguments that have the axis S where `in_axes` is 0, if there is one."""
        return jax.vmap(function, in_axes) if self.seed_axis else function

    def begin(self, seeds: jax.Array) -> TrainState:
        """The state before the first step, made where it is to lie."""
        # An argument, lest the compiler takes them for constants; every process has them whole.
        pretrained = jax.tree.map(
            mesh_lib.put,
            jax.tree.map(np.asarray, self.experiment.pretrained),
            mesh_lib.state_shardings(self.mesh, self.experiment.pretrained),
        )
        shardings = jax.tree.map(lambda leaf: leaf.sharding, self.state)
        begin = jax.jit(lambda seeds, pretrained: self._begin(seeds, pretrained), out_shardings=shardings)
        return begin(seeds, pretrained)

    def _begin(self, seeds: jax.Array, pretrained: Any) -> TrainState:
        def begin_one(seed: jax.Array, pretrained: Any) -> TrainState:
            leaves = {keystr(path): leaf for path, leaf in tree_flatten_with_path(pretrained)[0]}
            params = self.experiment.init(jax.random.fold_in(jax.random.key(seed), 0))
            params = tree_map_with_path(
                lambda path, leaf: leaves[keystr(path)].astype(leaf.dtype) if keystr(path) in leaves else leaf, params
            )
            return TrainState(params, self.experiment.optimizer.init(params), jnp.zeros((), bool))

        by_seed = 0 if self.experiment.pretrained_by_seed else None
        return self.over_seeds(begin_one, (0, by_seed))(seeds, pretrained)

    def trace(self) -> Traced:
        """The train step: `train(state, seeds, examples, chunk, first_step, arguments) -> state, metrics`.

        It donates the state: its buffers hold the result. Raises `UsageError` if something branches on an argument.
        """
        accumulate, clip_norm = self.config.get("accumulate", 1), self.config.optimizer.get("clip_norm", 0.0)

        def train(state: Any, seeds: Any, examples: Any, chunk: Any, first_step: Any, arguments: Any) -> Any:
            experiment, total_steps = self.experiment_of(arguments), self.plan.total_steps
            step_of = make_train(experiment, total_steps, accumulate, clip_norm)
            return step_of(state, seeds, examples, chunk, first_step)

        shardings = jax.tree.map(lambda leaf: leaf.sharding, self.state), self.everywhere
        with jax.set_mesh(self.mesh):
            try:
                return jax.jit(train, donate_argnums=0, out_shardings=shardings).trace(
                    self.state, self._seeds, *self.feed.shapes, np.int32(0), self.arguments
                )
            except jax.errors.ConcretizationTypeError as error:
                if not self.arguments:
                    raise
                names = tuple(self.arguments)
                raise UsageError(
                    f"config.arguments={names} is not allowed: it must be fields that are only computed with, and the "
                    "value of one of these decides what is computed"
                ) from error
