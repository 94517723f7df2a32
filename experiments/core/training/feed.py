"""How batches reach the train step: from arrays that stay on the devices, or as a stream.

A feed is the data of a run as one compiled call sees them: `examples`, which are the same in every
call; `chunk`, what differs between calls, with an axis of K steps; and `take`, which makes the
batch of a step of the two, inside the compiled code. `S` seeds, `K` steps, `B` batch.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import jax
import ml_collections
import numpy as np
from jax.sharding import Mesh

from experiments.core.config import require, require_one_of
from experiments.core.input.batches import step_indices
from experiments.core.input.dataset import Data
from experiments.core.input.stream import Arrays, HostBatches, Shuffled, num_examples
from experiments.core.training import mesh as mesh_lib
from experiments.core.training.plan import by_steps

Take = Callable[[Any, Any], Any]


@dataclasses.dataclass(frozen=True)
class Shapes:
    """What a feed hands to a compiled call, as `jax.ShapeDtypeStruct` with their places, and how it takes a batch."""

    examples: Any
    chunk: Any
    take: Take


NAMES = ("resident", "stream")


class Feed(Protocol):
    """See the module."""

    examples: Any
    ahead: int  # calls whose chunks are worth having on the device beforehand

    @staticmethod
    def take(examples: Any, at_step: Any) -> Any:
        """The batch of a step from `examples` and the step's part of a chunk."""

    def chunk(self, first_step: int) -> Any:
        """What the steps from `first_step` on need besides `examples`: a pure function."""

    def close(self) -> None:
        """Gives back what is held to make chunks; arrays on the devices stay."""


class Resident:
    """All examples on every device, and indices [S, K, B] per call; [K, B] without an axis of seeds."""

    ahead = 0  # indices are quick to make and small

    def __init__(
        self, examples: Arrays, seeds: Sequence[int], batch_size: int, num_steps: int, mesh: Mesh, *, seed_axis: bool
    ):
        everywhere = mesh_lib.replicated(mesh)
        self.examples = {name: mesh_lib.put(array, everywhere) for name, array in examples.items()}
        self._seeds, self._seed_axis = seeds, seed_axis
        self._size = (num_steps, num_examples(examples), batch_size)
        self._sharding = mesh_lib.batch_sharding(mesh, axis=2 if seed_axis else 1)

    @staticmethod
    def shapes(
        examples: Arrays, num_seeds: int, batch_size: int, num_steps: int, mesh: Mesh, *, seed_axis: bool
    ) -> Shapes:
        """Of a feed that is made of the same."""
        everywhere, divided = mesh_lib.replicated(mesh), mesh_lib.batch_sharding(mesh, axis=2 if seed_axis else 1)
        shape = (num_seeds, num_steps, batch_size)
        return Shapes(
            {name: mesh_lib.like(array.shape, array.dtype, everywhere) for name, array in examples.items()},
            mesh_lib.like(shape if seed_axis else shape[1:], np.int32, divided),
            Resident.take,
        )

    @staticmethod
    def take(examples: Any, at_step: Any) -> Any:
        """The rows that the indices [B] name."""
        return jax.tree.map(lambda array: array[at_step], examples)

    def chunk(self, first_step: int) -> jax.Array:
        """The indices of a call."""
        indices = np.stack([step_indices(seed, first_step, *self._size) for seed in self._seeds])
        return mesh_lib.put(indices if self._seed_axis else indices[0], self._sharding)

    def close(self) -> None:
        """Nothing is held."""


class Streamed:
    """The batches of one seed, each array [K, B, ...], from the host."""

    ahead = 2  # one on its way to the device while another is used

    def __init__(self, host: HostBatches, batch_size: int, num_steps: int, mesh: Mesh):
        self.examples: Arrays = {}
        self._host, self._batch_size, self._num_steps = host, batch_size, num_steps
        self._sharding = mesh_lib.batch_sharding(mesh, axis=1)

    @staticmethod
    def shapes(example: Arrays, batch_size: int, num_steps: int, mesh: Mesh) -> Shapes:
        """Of a feed of rows like `example`."""
        divided = mesh_lib.batch_sharding(mesh, axis=1)
        rows = {
            name: mesh_lib.like((num_steps, batch_size, *array.shape), array.dtype, divided)
            for name, array in example.items()
        }
        return Shapes({}, rows, Streamed.take)

    @staticmethod
    def take(examples: Any, at_step: Any) -> Any:
        """The batch as it is."""
        return at_step

    def chunk(self, first_step: int) -> dict[str, jax.Array]:
        """The batches of a call, divided over the devices of all processes."""
        steps = range(first_step, first_step + self._num_steps)
        batches = [self._host.batch(step) for step in steps]
        return {name: self._put(np.stack([batch[name] for batch in batches])) for name in batches[0]}

    def close(self) -> None:
        """Closes the stream."""
        self._host.close()

    def _put(self, rows: np.ndarray) -> jax.Array:
        shape = (self._num_steps, self._batch_size, *rows.shape[2:])
        return jax.make_array_from_process_local_data(self._sharding, rows, shape)


def chunks(feed: Feed, first_steps: Iterable[int]) -> Iterator[Any]:
    """The chunks of successive calls, with the next `feed.ahead` of them under way to the devices.

    A chunk is made when an earlier one is asked for, that is, while the devices are busy with the
    call before; no thread is needed, since transfers and calls are asynchronous.
    """
    ready: collections.deque[Any] = collections.deque()
    for first_step in first_steps:
        ready.append(feed.chunk(first_step))
        if len(ready) > feed.ahead:
            yield ready.popleft()
    yield from ready


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks `config.feed`, which is `resident` if left out; a stream is of one seed, and by steps."""
    name = config.get("feed", "resident")
    require_one_of("feed", name, NAMES)
    if name == "stream":
        require(len(config.seeds) == 1, "seeds", config.seeds, "a single one where feed='stream'")
        require(by_steps(config), "feed", name, "'resident' where the length is given in epochs")


def shapes(config: ml_collections.ConfigDict, data: Data, num_steps: int, mesh: Mesh, *, seed_axis: bool) -> Shapes:
    """What the feed that `make` makes of the same hands out; nothing is opened, and `mesh` may be a compiler's.

    Raises:
      UsageError: as `make`.
    """
    if _is_resident(config, data):
        return Resident.shapes(data.train, len(config.seeds), config.batch_size, num_steps, mesh, seed_axis=seed_axis)
    example = data.train_stream.example if data.train_stream else row_of(data.train)
    return Streamed.shapes(example, config.batch_size, num_steps, mesh)


def make(config: ml_collections.ConfigDict, data: Data, num_steps: int, mesh: Mesh, *, seed_axis: bool) -> Feed:
    """The feed of a valid config, of `num_steps` steps per call.

    Raises:
      UsageError: for data that are a stream where the config wants them resident.
    """
    if _is_resident(config, data):
        return Resident(data.train, config.seeds, config.batch_size, num_steps, mesh, seed_axis=seed_axis)
    (seed,) = config.seeds
    rows = mesh_lib.local_rows(mesh, config.batch_size)
    host: HostBatches
    if data.train_stream:
        host = data.train_stream.open(seed, rows)
    else:
        host = Shuffled(data.train, config.batch_size, seed, rows)
    return Streamed(host, config.batch_size, num_steps, mesh)


def _is_resident(config: ml_collections.ConfigDict, data: Data) -> bool:
    resident = config.get("feed", "resident") == "resident"
    if resident:
        require(data.train_stream is None, "feed", "resident", "'stream' for data that do not lie in memory")
    return resident


def row_of(examples: Arrays) -> Arrays:
    """Arrays of the shapes and types of one of the examples."""
    return {name: array[0] for name, array in examples.items()}
