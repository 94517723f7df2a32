"""Batches are a pure function of seed and epoch."""

import numpy as np

from experiments.core.input.batches import epoch_indices, seeds_epoch_indices


def test_an_epoch_takes_every_example_at_most_once_and_drops_the_rest():
    indices = epoch_indices(seed=3, epoch=1, num_examples=1003, batch_size=100)
    assert indices.shape == (10, 100)
    assert len(np.unique(indices)) == 1000
    assert indices.min() >= 0
    assert indices.max() < 1003


def test_same_seed_and_epoch_same_batches():
    np.testing.assert_array_equal(epoch_indices(3, 7, 500, 50), epoch_indices(3, 7, 500, 50))


def test_epochs_and_seeds_differ():
    orders = {epoch_indices(seed, epoch, 500, 50).tobytes() for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


def test_a_seed_has_its_own_batches_whatever_the_others_are():
    together = seeds_epoch_indices((5, 9), 2, 300, 64)
    np.testing.assert_array_equal(together[1], epoch_indices(9, 2, 300, 64))
