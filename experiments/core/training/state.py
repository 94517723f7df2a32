"""The state of training, and how it begins: fresh, or with pretrained parameters. `S` seeds."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jax.tree_util import keystr, tree_flatten_with_path, tree_map_with_path

from experiments.core.errors import UsageError
from experiments.core.training import mesh as mesh_lib
from experiments.core.training.experiment import Experiment, Params


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """All that training changes; every leaf has the leading axis S, if there is one."""

    params: Params
    opt_state: optax.OptState
    diverged: jax.Array  # bool: some loss or parameter has not been finite


def _begin(experiment: Experiment, seeds: jax.Array, pretrained: Any) -> TrainState:
    given = {keystr(path): leaf for path, leaf in tree_flatten_with_path(pretrained)[0]}

    def begin_one(seed: jax.Array) -> TrainState:
        params = experiment.init(jax.random.fold_in(jax.random.key(seed), 0))
        params = tree_map_with_path(
            lambda path, leaf: given[keystr(path)].astype(leaf.dtype) if keystr(path) in given else leaf, params
        )
        return TrainState(params, experiment.optimizer.init(params), jnp.zeros((), bool))

    return (jax.vmap(begin_one) if seeds.ndim else begin_one)(seeds)


def abstract(experiment: Experiment, seeds: jax.Array | jax.ShapeDtypeStruct, mesh: Mesh) -> TrainState:
    """The shapes, types and shardings of the state, without a single array: `mesh` may be of a compiler's devices.

    Raises:
      UsageError: if the experiment's pretrained parameters are not those of its model.
    """
    if jax.tree.leaves(experiment.pretrained):
        _check_pretrained(experiment)
    shapes = jax.eval_shape(lambda seeds: _begin(experiment, seeds, None), seeds)
    shardings = mesh_lib.state_shardings(mesh, shapes, leading=seeds.ndim)
    return jax.tree.map(
        lambda shape, sharding: jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding), shapes, shardings
    )


def _check_pretrained(experiment: Experiment) -> None:
    model = jax.eval_shape(lambda: experiment.init(jax.random.key(0)))
    shapes = {keystr(path): leaf.shape for path, leaf in tree_flatten_with_path(model)[0]}
    for path, leaf in tree_flatten_with_path(experiment.pretrained)[0]:
        name = f"the pretrained parameter {keystr(path)}"
        if keystr(path) not in shapes:
            raise UsageError(f"{name} is not one of the model, which has {', '.join(shapes)}")
        if leaf.shape != shapes[keystr(path)]:
            raise UsageError(f"{name} has shape {leaf.shape}, in the model {shapes[keystr(path)]}")


def init(experiment: Experiment, seeds: jax.Array, mesh: Mesh, like: TrainState | None = None) -> TrainState:
    """The state before the first step for `seeds` ([S], or a scalar), made where it is to lie.

    `like` is what `abstract` says of the same, where that is known: to trace a network takes a second.
    """
    shardings = jax.tree.map(lambda leaf: leaf.sharding, like or abstract(experiment, seeds, mesh))
    # An argument, lest the compiler takes them for constants; every process has them whole.
    pretrained = jax.tree.map(
        mesh_lib.put,
        jax.tree.map(np.asarray, experiment.pretrained),
        mesh_lib.state_shardings(mesh, experiment.pretrained),
    )
    begin = jax.jit(lambda seeds, pretrained: _begin(experiment, seeds, pretrained), out_shardings=shardings)
    return begin(seeds, pretrained)
