"""Evaluation on a whole data set: in one piece, or in batches of `config.eval_batch_size`. `B` batch, `S` seeds."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from jax.stages import Traced

from experiments.core.config import require
from experiments.core.input.stream import num_examples, of_arrays
from experiments.core.training import mesh as mesh_lib
from experiments.core.training.experiment import Metrics, Params
from experiments.core.training.feed import Streamed, chunks
from experiments.core.training.step import Program


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks `config.eval_batch_size`, which may be left out, against the devices there are."""
    size = config.get("eval_batch_size")
    parts = mesh_lib.batch_parts(config)
    if size is not None:
        require(size > 0 and size % parts == 0, "eval_batch_size", size, f"a positive multiple of the {parts} devices")


def make(program: Program) -> "Evaluate":
    """Returns the evaluation that a valid config asks for; it reads no data before it is compiled.

    Raises `UsageError` where the data are a stream, and the config does not say how much of it to take at once.
    """
    size, stream = program.config.get("eval_batch_size"), program.data.evaluation_stream
    if size is not None:
        return _InBatches(program, size)
    require(stream is None, "eval_batch_size", size, "given for data that do not lie in memory")
    return Evaluate(program)


class Evaluate:
    """Metrics of parameters over all examples, on the host: scalars, or [S] where there is an axis of seeds.

    All lie on every device: for small data sets, and metrics that are no means over examples.
    """

    def __init__(self, program: Program):
        stream = program.data.evaluation_stream
        self._program = program
        self._num_examples = stream.num_examples if stream else num_examples(program.data.evaluation)
        self._examples: Any = {}
        self._compiled: Any = None

    def trace(self, params: Params) -> Traced:
        """The program of a call for parameters like `params`, arrays or shapes, on any mesh; no data are touched."""
        experiment, everywhere = self._program.experiment, self._program.everywhere
        conclude = experiment.conclude or (lambda means: means)

        def evaluate(params: Params, examples: Any, progress: jax.Array, arguments: Any) -> Metrics:
            metrics = self._program.experiment_of(arguments).evaluate(params, examples, progress)
            return conclude(jax.tree.map(lambda value: value.mean(axis=0) if jnp.ndim(value) else value, metrics))

        arrays = self._program.data.evaluation
        examples = {name: mesh_lib.like(array, everywhere) for name, array in arrays.items()}
        over_seeds = self._program.over_seeds(evaluate, (0, None, None, None))
        traced = jax.jit(over_seeds, out_shardings=everywhere)
        return traced.trace(params, examples, np.float32(0), self._program.arguments)

    def compile(self, params: Params) -> None:
        """Opens the data, and compiles for parameters like `params`; once, before the first call."""
        self._open(params)
        self._compiled = self.trace(params).lower().compile()

    def __call__(self, params: Params, progress: float) -> Metrics:
        """The metrics over all examples."""
        arguments = self._program.arguments
        return jax.device_get(self._compiled(params, self._examples, np.float32(progress), arguments))

    def examine(self, params: Params) -> dict[str, np.ndarray]:
        """Returns what `Experiment.examine` says of all N examples, in their order: [S, N]; S = 1 without that axis."""
        examine = self._program.over_seeds(self._program.experiment.examine, (0, None))  # type: ignore[arg-type]
        compiled = jax.jit(examine, out_shardings=self._program.everywhere)
        parts = [jax.tree.map(np.atleast_2d, jax.device_get(compiled(params, batch))) for batch in self._batches()]
        return jax.tree.map(lambda *arrays: np.concatenate(arrays, axis=1)[:, : self._num_examples], *parts)

    def close(self) -> None:
        """Gives back what is held to read the examples."""
        self._examples = {}

    def _open(self, params: Params) -> None:
        arrays, everywhere = self._program.data.evaluation, self._program.everywhere
        self._examples = {name: mesh_lib.put(array, everywhere) for name, array in arrays.items()}

    def _batches(self) -> Iterator[Any]:
        """All examples, on the devices."""
        yield self._examples


class _InBatches(Evaluate):
    """One compiled call per batch, which adds to sums over the examples; every process reads its rows alone."""

    def __init__(self, program: Program, batch_size: int):
        super().__init__(program)
        experiment, data, number_of_examples = program.experiment, program.data, self._num_examples
        stream = data.evaluation_stream or of_arrays(data.evaluation, batch_size, shuffled=False)
        self._feed = Streamed(stream, 0, batch_size, 1, program.mesh)
        self._num_batches = -(-number_of_examples // batch_size)

        def sums(params: Params, chunk: Any, number: jax.Array, progress: jax.Array, arguments: Any) -> Metrics:
            # Padding of the last batch is computed with but not counted, whatever comes of it. (Where images compete
            # in groups, it takes part in the group of the last real ones.)
            real = number * batch_size + jnp.arange(batch_size, dtype=jnp.int32) < number_of_examples
            metrics = program.experiment_of(arguments).evaluate(params, _only(chunk), progress)
            return jax.tree_util.tree_map_with_path(
                lambda path, value: _sum(path, value, real, of_scalars=experiment.conclude is None), metrics
            )

        # Compiled within `_add` alone; but so it is traced once, for its shapes and for that.
        self._sums = jax.jit(program.over_seeds(sums, (0, None, None, None, None)))
        self._add = jax.jit(
            lambda totals, *arguments: jax.tree.map(jnp.add, totals, self._sums(*arguments)),
            out_shardings=program.everywhere,
        )
        conclude = program.over_seeds(experiment.conclude) if experiment.conclude else None
        self._conclude = conclude and jax.jit(conclude, out_shardings=program.everywhere)
        self._zeros: Metrics = {}

    def _totals(self, params: Params) -> Metrics:
        """The shapes of the sums."""
        shapes = jax.eval_shape(
            self._sums, params, self._feed.shapes.chunk, np.int32(0), np.float32(0), self._program.arguments
        )
        return jax.tree.map(lambda shape: mesh_lib.like(shape, self._program.everywhere), shapes)

    def trace(self, params: Params) -> Traced:
        zero, arguments = np.float32(0), self._program.arguments
        return self._add.trace(self._totals(params), params, self._feed.shapes.chunk, np.int32(0), zero, arguments)

    def __call__(self, params: Params, progress: float) -> Metrics:
        totals = self._zeros
        for number, chunk in enumerate(chunks(self._feed, range(self._num_batches))):
            at = np.int32(number), np.float32(progress), self._program.arguments
            totals = self._compiled(totals, params, chunk, *at)
        means = jax.tree.map(lambda total: total / np.float32(self._num_examples), jax.device_get(totals))
        return jax.device_get(self._conclude(means)) if self._conclude else means

    def close(self) -> None:
        self._feed.close()

    def _open(self, params: Params) -> None:
        self._feed.open()
        self._zeros = jax.tree.map(
            lambda total: mesh_lib.put(np.zeros(total.shape, total.dtype), self._program.everywhere),
            self._totals(params),
        )

    def _batches(self) -> Iterator[Any]:
        return map(_only, chunks(self._feed, range(self._num_batches)))


def _only(chunk: Any) -> Any:
    """The batch of a chunk that has one."""
    return jax.tree.map(lambda array: array[0], chunk)


def _sum(path: Any, value: jax.Array, real: jax.Array, *, of_scalars: bool) -> jax.Array:
    """Sums over real examples, padding excluded; with `of_scalars` there may be only one value for each example."""
    if value.shape[:1] != real.shape or (of_scalars and value.ndim > 1):
        raise ValueError(
            f"metric {jax.tree_util.keystr(path)} has shape {value.shape}: "
            f"with config.eval_batch_size it must have one value per example, {real.shape}"
        )
    real = real.reshape(-1, *[1] * (value.ndim - 1))
    return jnp.where(real, value.astype(jnp.float32), 0.0).sum(axis=0)
