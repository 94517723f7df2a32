"""Evaluation on a whole data set: in one piece, or in batches of `config.eval_batch_size`. `M` batches of `B`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from jax.sharding import Mesh

from experiments.core import mesh as mesh_lib
from experiments.core.config import require
from experiments.core.experiment import Experiment


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks `config.eval_batch_size` against the devices there are."""
    size = config.get("eval_batch_size")
    parts = mesh_lib.batch_parts(config)
    if size is not None:
        require(
            size > 0 and size % parts == 0,
            "eval_batch_size",
            size,
            f"a positive multiple of mesh.data x mesh.fsdp = {parts}",
        )


def put(examples: dict[str, np.ndarray], batch_size: int | None, mesh: Mesh) -> Any:
    """The examples as `make` wants them: whole on every device, or (batches [M, B, ...], real [M, B]) divided.

    The last batch is filled up with zeros that are not `real`.
    """
    if batch_size is None:
        everywhere = mesh_lib.replicated(mesh)
        return {name: mesh_lib.put(array, everywhere) for name, array in examples.items()}
    num_examples = len(next(iter(examples.values())))
    num_batches = -(-num_examples // batch_size)
    divided = mesh_lib.batch_sharding(mesh, axis=1)

    def batched(array: np.ndarray) -> jax.Array:
        missing = num_batches * batch_size - num_examples
        padded = np.concatenate([array, np.zeros((missing, *array.shape[1:]), array.dtype)])
        return mesh_lib.put(padded.reshape(num_batches, batch_size, *array.shape[1:]), divided)

    return {name: batched(array) for name, array in examples.items()}, batched(np.ones(num_examples, bool))


def make(experiment: Experiment, *, batched: bool, seed_axis: bool) -> Callable[[Any, Any, Any], Any]:
    """`evaluate(params, put(...), progress) -> metrics`: scalars, or [S] where there is an axis of seeds."""
    evaluate = _in_batches(experiment) if batched else _in_one_piece(experiment)
    return jax.vmap(evaluate, in_axes=(0, None, None)) if seed_axis else evaluate


def _in_one_piece(experiment: Experiment) -> Callable[[Any, Any, Any], Any]:
    def evaluate(params: Any, examples: Any, progress: Any) -> Any:
        metrics = experiment.evaluate(params, examples, progress)
        return jax.tree.map(lambda value: value.mean(axis=0) if jnp.ndim(value) else value, metrics)

    return evaluate


def _in_batches(experiment: Experiment) -> Callable[[Any, Any, Any], Any]:
    def evaluate(params: Any, batches: Any, progress: Any) -> Any:
        def sums(at: Any) -> Any:
            examples, real = at
            metrics = experiment.evaluate(params, examples, progress)
            return jax.tree_util.tree_map_with_path(lambda path, value: _sum(path, value, real), metrics)

        _, real = batches
        count = real.sum().astype(jnp.float32)
        return jax.tree.map(lambda values: values.sum() / count, jax.lax.map(sums, batches))

    return evaluate


def _sum(path: Any, value: jax.Array, real: jax.Array) -> jax.Array:
    if value.shape != real.shape:
        raise ValueError(
            f"metric {jax.tree_util.keystr(path)} has shape {value.shape}: "
            f"with config.eval_batch_size it must have one value per example, {real.shape}"
        )
    return jnp.where(real, value.astype(jnp.float32), 0.0).sum()
