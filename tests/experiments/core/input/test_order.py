"""Batches are a pure function of seed and epoch."""

import numpy as np

from experiments.core.input.stream import batch_indices, epoch_indices


def test_epoch_takes_examples_at_most_once():
    indices = epoch_indices(seed=3, epoch=1, num_examples=1003, batch_size=100)
    assert indices.shape == (10, 100)
    assert len(np.unique(indices)) == 1000
    assert indices.min() >= 0
    assert indices.max() < 1003


def test_orders_follow_from_seed_and_epoch():
    orders = {
        epoch_indices(seed, epoch, 500, 50).tobytes() for _ in range(2) for seed in range(4) for epoch in range(4)
    }
    assert len(orders) == 16


def test_steps_go_through_the_epochs():
    epochs = np.concatenate([epoch_indices(7, epoch, 100, 24) for epoch in range(3)])
    np.testing.assert_array_equal([batch_indices(7, step, 100, 24) for step in range(2, 11)], epochs[2:11])
