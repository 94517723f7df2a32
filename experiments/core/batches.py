"""Which examples make up which batch: a pure function of the seed and the epoch.

Nothing about the order of the data is ever saved: a resumed run, or another host, computes the
same indices again. The permutation is NumPy's because XLA's sort-based one costs as much as the
training of a small network (55 ms against 1 ms for 60,000 examples on one core).
"""

from collections.abc import Sequence

import numpy as np


def epoch_indices(seed: int, epoch: int, num_examples: int, batch_size: int) -> np.ndarray:
    """Indices [K, B] (steps, batch) of one epoch; the incomplete last batch is dropped."""
    steps = num_examples // batch_size
    order = np.random.default_rng((seed, epoch)).permutation(num_examples)
    return order[: steps * batch_size].reshape(steps, batch_size).astype(np.int32)


def seeds_epoch_indices(seeds: Sequence[int], epoch: int, num_examples: int, batch_size: int) -> np.ndarray:
    """Indices [S, K, B] of one epoch for every seed."""
    return np.stack([epoch_indices(seed, epoch, num_examples, batch_size) for seed in seeds])
