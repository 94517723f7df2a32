"""Batches that come from the memory of the host, from arrays there or a pipeline; and which examples make up which.

The order of the data is a pure function of the seed and the step: a resumed run, or another host, computes the same
indices again. The permutation is NumPy's: XLA's takes as long as a small network trains (55 ms for 60,000 examples).
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Stream:
    """A data set that does not lie in memory.

    Attributes:
      num_examples: in one pass.
      open: `open(seed, rows) -> batches`, of `config.batch_size`, and to evaluate of `config.eval_batch_size`. Their
        `batch(step)` returns the `rows` [R] of this process (`mesh.local_rows`), a pure function of the seed and the
        step; steps are asked for in order, from anywhere on. To evaluate, examples come in their order, and rows past
        the last one may hold anything. `close()` gives back what is held to make them, such as processes.
      example: arrays of the shapes and types of a single row, whatever is in them: what a step is compiled for.
    """

    num_examples: int
    open: Callable[[int, np.ndarray], Any]
    example: Arrays


@dataclasses.dataclass(frozen=True)
class InMemoryBatches:
    """`rows` of the batches of arrays in memory, in the order of `batch_indices`."""

    examples: Arrays
    batch_size: int
    rows: np.ndarray
    seed: int | None = None

    def batch(self, step: int) -> Arrays:
        """The `rows` of the batch of `step`."""
        indices = batch_indices(self.seed, step, num_examples(self.examples), self.batch_size)[self.rows]
        return {name: array[indices] for name, array in self.examples.items()}

    def close(self) -> None:
        """Nothing is held."""


def of_arrays(examples: Arrays, batch_size: int, *, shuffled: bool) -> Stream:
    """The stream of arrays in memory, shuffled to train, in their order to evaluate."""

    def opened(seed: int, rows: np.ndarray) -> InMemoryBatches:
        return InMemoryBatches(examples, batch_size, rows, seed if shuffled else None)

    return Stream(num_examples(examples), opened, {name: array[0] for name, array in examples.items()})


def blank(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array of zeros that takes no memory, to be looked at for its shape and type."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def num_examples(examples: Arrays) -> int:
    """The length that all the arrays have."""
    return len(next(iter(examples.values())))


@functools.lru_cache(maxsize=16)  # epochs under way, of which a step is a small part
def epoch_indices(seed: int, epoch: int, num_examples: int, batch_size: int) -> np.ndarray:
    """Indices [K, B] (steps, batch) of one epoch; the incomplete last batch is dropped."""
    steps = num_examples // batch_size
    order = np.random.default_rng((seed, epoch)).permutation(num_examples)
    return order[: steps * batch_size].reshape(steps, batch_size).astype(np.int32)


def batch_indices(seed: int | None, step: int, num_examples: int, batch_size: int) -> np.ndarray:
    """Indices [B] of the batch of `step`, counted over all epochs.

    Without a seed they are in order, and the last example fills up the last batch.
    """
    if seed is None:
        return np.minimum(step * batch_size + np.arange(batch_size), num_examples - 1)
    epoch, number = divmod(step, num_examples // batch_size)
    return epoch_indices(seed, epoch, num_examples, batch_size)[number]
