"""Evaluation on a whole data set: in one piece, or in batches of `config.eval_batch_size`. `B` batch, `S` seeds."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.stages import Traced

from experiments.core.config import require
from experiments.core.input.dataset import Data
from experiments.core.input.stream import HostBatches, InOrder, num_examples
from experiments.core.training import mesh as mesh_lib
from experiments.core.training.experiment import Experiment, Metrics, Params
from experiments.core.training.feed import Shapes, Streamed, chunks, row_of


class Evaluate(Protocol):
    """Metrics of parameters, on the host: scalars, or [S] where there is an axis of seeds."""

    def trace(self, params: Params) -> Traced:
        """The program of a call for parameters like `params`, arrays or shapes, on any mesh; no data are touched."""

    def compile(self, params: Params) -> None:
        """Opens the data, and compiles for parameters like `params`; once, before the first call."""

    def __call__(self, params: Params, progress: float) -> Metrics:
        """The metrics over all examples."""

    def examine(self, params: Params) -> dict[str, np.ndarray]:
        """What the experiment's `examine` says of all N examples, in their order: [S, N], S = 1 without that axis."""

    def close(self) -> None:
        """Gives back what is held to read the examples."""


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks `config.eval_batch_size`, which may be left out, against the devices there are."""
    size = config.get("eval_batch_size")
    parts = mesh_lib.batch_parts(config)
    if size is not None:
        require(size > 0 and size % parts == 0, "eval_batch_size", size, f"a positive multiple of the {parts} devices")


def make(
    config: ml_collections.ConfigDict, data: Data, experiment: Experiment, mesh: Mesh, *, seed_axis: bool
) -> Evaluate:
    """The evaluation that a valid config asks for.

    Raises:
      UsageError: if the data are a stream, and the config does not say how much of it to take at once.
    """
    size, stream = config.get("eval_batch_size"), data.evaluation_stream
    if size is None:
        require(stream is None, "eval_batch_size", size, "given for data that do not lie in memory")
        return _InOnePiece(experiment, data.evaluation, mesh, seed_axis=seed_axis)

    def opened() -> Streamed:
        rows = mesh_lib.local_rows(mesh, size)
        host: HostBatches = stream.open(0, rows) if stream else InOrder(data.evaluation, size, rows)
        return Streamed(host, size, 1, mesh)

    count = stream.num_examples if stream else num_examples(data.evaluation)
    shapes = Streamed.shapes(stream.example if stream else row_of(data.evaluation), size, 1, mesh)
    return _InBatches(experiment, opened, shapes, count, size, mesh, seed_axis=seed_axis)


class _InOnePiece:
    """All examples on every device: for small data sets, and metrics that are no means over examples."""

    def __init__(self, experiment: Experiment, examples: dict[str, np.ndarray], mesh: Mesh, *, seed_axis: bool):
        self._arrays, self._everywhere = examples, mesh_lib.replicated(mesh)
        self._examples: Any = {}
        conclude = experiment.conclude or (lambda means: means)

        def evaluate(params: Params, examples: Any, progress: jax.Array) -> Metrics:
            metrics = experiment.evaluate(params, examples, progress)
            return conclude(jax.tree.map(lambda value: value.mean(axis=0) if jnp.ndim(value) else value, metrics))

        over_seeds = jax.vmap(evaluate, in_axes=(0, None, None)) if seed_axis else evaluate
        self._evaluate: Any = jax.jit(over_seeds, out_shardings=self._everywhere)
        self._examine = _examination(experiment, self._everywhere, seed_axis=seed_axis)

    def trace(self, params: Params) -> Traced:
        examples = {
            name: mesh_lib.like(array.shape, array.dtype, self._everywhere) for name, array in self._arrays.items()
        }
        return self._evaluate.trace(params, examples, np.float32(0))

    def compile(self, params: Params) -> None:
        self._examples = {name: mesh_lib.put(array, self._everywhere) for name, array in self._arrays.items()}
        self._evaluate = self.trace(params).lower().compile()

    def __call__(self, params: Params, progress: float) -> Metrics:
        return jax.device_get(self._evaluate(params, self._examples, np.float32(progress)))

    def examine(self, params: Params) -> dict[str, np.ndarray]:
        return _by_seed(jax.device_get(self._examine(params, self._examples)))

    def close(self) -> None:
        pass


class _InBatches:
    """One compiled call per batch, which adds to sums over the examples; every process reads its rows alone."""

    def __init__(
        self,
        experiment: Experiment,
        open_feed: Callable[[], Streamed],
        shapes: Shapes,
        num_examples: int,
        batch_size: int,
        mesh: Mesh,
        *,
        seed_axis: bool,
    ):
        self._open_feed, self._shapes, self._num_examples = open_feed, shapes, num_examples
        self._num_batches = -(-num_examples // batch_size)
        self._feed: Streamed | None = None

        def sums(params: Params, chunk: Any, number: jax.Array, progress: jax.Array) -> Metrics:
            batch = _only(chunk)
            # What fills up the last batch is computed with but not counted, whatever comes of it. (Where images compete
            # in groups, it takes part in the group of the last real ones.)
            real = number * batch_size + jnp.arange(batch_size, dtype=jnp.int32) < num_examples
            metrics = experiment.evaluate(params, batch, progress)
            return jax.tree_util.tree_map_with_path(
                lambda path, value: _sum(path, value, real, of_scalars=experiment.conclude is None), metrics
            )

        # Compiled within `_add` alone; but so it is traced once, for its shapes and for that.
        self._sums = jax.jit(jax.vmap(sums, in_axes=(0, None, None, None)) if seed_axis else sums)
        self._everywhere = mesh_lib.replicated(mesh)
        self._add: Any = jax.jit(
            lambda totals, *arguments: jax.tree.map(jnp.add, totals, self._sums(*arguments)),
            out_shardings=self._everywhere,
        )
        self._examine = _examination(experiment, self._everywhere, seed_axis=seed_axis)
        self._conclude: Any = None
        if conclude := experiment.conclude:
            over_seeds = jax.vmap(conclude) if seed_axis else conclude
            self._conclude = jax.jit(over_seeds, out_shardings=self._everywhere)
        self._zeros: Metrics = {}

    def _totals(self, params: Params) -> Metrics:
        """The shapes of the sums."""
        shapes = jax.eval_shape(self._sums, params, self._shapes.chunk, np.int32(0), np.float32(0))
        return jax.tree.map(lambda shape: mesh_lib.like(shape.shape, shape.dtype, self._everywhere), shapes)

    def trace(self, params: Params) -> Traced:
        return self._add.trace(self._totals(params), params, self._shapes.chunk, np.int32(0), np.float32(0))

    def compile(self, params: Params) -> None:
        self._feed = self._open_feed()
        self._zeros = jax.tree.map(
            lambda total: mesh_lib.put(np.zeros(total.shape, total.dtype), self._everywhere), self._totals(params)
        )
        self._add = self.trace(params).lower().compile()

    def __call__(self, params: Params, progress: float) -> Metrics:
        totals = self._zeros
        for number, chunk in enumerate(self._chunks()):
            totals = self._add(totals, params, chunk, np.int32(number), np.float32(progress))
        means = jax.tree.map(lambda total: total / np.float32(self._num_examples), jax.device_get(totals))
        return jax.device_get(self._conclude(means)) if self._conclude else means

    def examine(self, params: Params) -> dict[str, np.ndarray]:
        batches = [_by_seed(jax.device_get(self._examine(params, _only(chunk)))) for chunk in self._chunks()]
        return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1)[:, : self._num_examples], *batches)

    def _chunks(self) -> Iterator[Any]:
        if self._feed is None:
            raise RuntimeError("compile before the first call")
        return chunks(self._feed, range(self._num_batches))

    def close(self) -> None:
        if self._feed:
            self._feed.close()


def _examination(experiment: Experiment, everywhere: NamedSharding, *, seed_axis: bool) -> Any:
    """`experiment.examine` over seeds, compiled when it is first called."""

    def examine(params: Params, examples: Any) -> dict[str, jax.Array]:
        if experiment.examine is None:
            raise ValueError("this experiment has nothing to say of single examples")
        return experiment.examine(params, examples)

    return jax.jit(jax.vmap(examine, in_axes=(0, None)) if seed_axis else examine, out_shardings=everywhere)


def _by_seed(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.atleast_2d(value) for name, value in values.items()}


def _only(chunk: Any) -> Any:
    """The batch of a chunk that has one."""
    return jax.tree.map(lambda array: array[0], chunk)


def _sum(path: Any, value: jax.Array, real: jax.Array, *, of_scalars: bool) -> jax.Array:
    """Over the real ones of a batch; of what there is only one for each example, unless more is to be concluded of."""
    if value.shape[:1] != real.shape or (of_scalars and value.ndim > 1):
        raise ValueError(
            f"metric {jax.tree_util.keystr(path)} has shape {value.shape}: "
            f"with config.eval_batch_size it must have one value per example, {real.shape}"
        )
    real = real.reshape(-1, *[1] * (value.ndim - 1))
    return jnp.where(real, value.astype(jnp.float32), 0.0).sum(axis=0)
