"""How batches reach the train step: from arrays that stay on the devices, or as a stream.

A feed has `examples`, the same in every compiled call, and `chunk`, what differs between calls, with an axis of K
steps. `take` makes the batch of a step of the two, in the compiled code. `S` seeds, `K` steps, `B` batch.
"""

import collections
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from experiments.core.input.dataset import Data
from experiments.core.input.stream import Arrays, Stream, batch_indices, num_examples
from experiments.core.training import mesh as mesh_lib


class Shapes(NamedTuple):
    """The arguments that a feed hands to a compiled call, as `jax.ShapeDtypeStruct` with their places."""

    examples: Any
    chunk: Any


class Resident:
    """All examples on every device, and indices [S, K, B] per call; [K, B] without an axis of seeds."""

    ahead = 0  # calls whose chunks are worth having on the device beforehand: indices are quick to make and small

    def __init__(self, arrays: Arrays, seeds: np.ndarray, batch_size: int, num_steps: int, mesh: Mesh):
        self.examples: Any = {}
        self._arrays, self._seeds, self._batch_size, self._num_steps = arrays, seeds, batch_size, num_steps
        self._everywhere, self._sharding = mesh_lib.replicated(mesh), mesh_lib.batch_sharding(mesh, axis=seeds.ndim + 1)

    @property
    def shapes(self) -> Shapes:
        """Shapes of the arrays in memory, and of the indices."""
        shape = (*self._seeds.shape, self._num_steps, self._batch_size)
        indices = jax.ShapeDtypeStruct(shape, np.int32, sharding=self._sharding)
        return Shapes({name: mesh_lib.like(array, self._everywhere) for name, array in self._arrays.items()}, indices)

    def open(self) -> None:
        """Copies all examples to every device."""
        self.examples = {name: mesh_lib.put(array, self._everywhere) for name, array in self._arrays.items()}

    def chunk(self, first_step: int) -> jax.Array:
        """The indices of a call."""
        size, seeds = (num_examples(self._arrays), self._batch_size), self._seeds.ravel().tolist()
        steps = range(first_step, first_step + self._num_steps)
        indices = np.stack([[batch_indices(seed, step, *size) for step in steps] for seed in seeds])
        return mesh_lib.put(indices.reshape(*self._seeds.shape, *indices.shape[1:]), self._sharding)

    def close(self) -> None:
        """Nothing is held."""


class Streamed:
    """The batches of one seed, each array [K, B, ...], from the host."""

    ahead = 2  # one on its way to the device while another is used

    def __init__(self, stream: Stream, seed: int, batch_size: int, num_steps: int, mesh: Mesh):
        self.examples: Arrays = {}
        self._stream, self._seed, self._mesh = stream, seed, mesh
        self._shape = (num_steps, batch_size)
        self._sharding = mesh_lib.batch_sharding(mesh, axis=1)
        self._host: Any = None

    @property
    def shapes(self) -> Shapes:
        """Shapes of whole batches, on all hosts together."""
        return Shapes(
            {},
            {
                name: jax.ShapeDtypeStruct((*self._shape, *array.shape), array.dtype, sharding=self._sharding)
                for name, array in self._stream.example.items()
            },
        )

    def open(self) -> None:
        """Starts the stream."""
        self._host = self._stream.open(self._seed, mesh_lib.local_rows(self._mesh, self._shape[1]))

    def chunk(self, first_step: int) -> dict[str, jax.Array]:
        """The batches of a call, divided over the devices of all processes."""
        batches = [self._host.batch(step) for step in range(first_step, first_step + self._shape[0])]
        return {name: self._put(np.stack([batch[name] for batch in batches])) for name in batches[0]}

    def close(self) -> None:
        """Closes the stream."""
        if self._host:
            self._host.close()

    def _put(self, rows: np.ndarray) -> jax.Array:
        return jax.make_array_from_process_local_data(self._sharding, rows, (*self._shape, *rows.shape[2:]))


# Nothing of either is read or put on a device, which may be a compiler's, before it is open.
Feed = Resident | Streamed


def take(examples: Any, at_step: Any) -> Any:
    """The batch of a step: the rows of `examples` that indices [B] name, or what is streamed, where there are none."""
    return jax.tree.map(lambda array: array[at_step], examples) if examples else at_step


def chunks(feed: Feed, first_steps: Iterable[int]) -> Iterator[Any]:
    """The chunks of successive calls, with the next `feed.ahead` of them under way to the devices.

    The first is made at once; a later one when an earlier one is asked for, while the devices are busy. Transfers and
    calls are asynchronous.
    """
    steps = iter(first_steps)
    ready = collections.deque(feed.chunk(step) for step in itertools.islice(steps, 1))

    def rest() -> Iterator[Any]:
        for step in steps:
            ready.append(feed.chunk(step))
            if len(ready) > feed.ahead:
                yield ready.popleft()
        while ready:
            yield ready.popleft()

    return rest()


def make(data: Data, seeds: np.ndarray, batch_size: int, num_steps: int, mesh: Mesh) -> Feed:
    """Returns the feed of calls of so many steps, not yet open: resident, but for data that come as a stream."""
    if data.train_stream is None:
        return Resident(data.train, seeds, batch_size, num_steps, mesh)
    (seed,) = seeds.ravel().tolist()
    return Streamed(data.train_stream, seed, batch_size, num_steps, mesh)
