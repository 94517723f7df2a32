"""Filters as images: which of them, and their colours."""

import numpy as np
import pytest

from experiments.vision import filters


def kernel(channels, count=20):
    """Patches of 2 x 2 places, filters that grow: [2, 2, C, count]."""
    return np.random.default_rng(0).normal(size=(2, 2, channels, count)).astype(np.float32) * (1 + np.arange(count))


def test_patches_are_those_of_largest_norm_and_their_channels_are_colours():
    params = {"embedding": {"kernel": kernel(3)}}
    images = filters.patch_filters(params)["patch_embedding"]
    assert images.shape == (16, 2, 2, 3)
    order = np.argsort(-np.linalg.norm(kernel(3).reshape(12, 20), axis=0))
    first = kernel(3)[..., order[0]]
    np.testing.assert_allclose(images[0], 0.5 + first / np.abs(first).max() / 2, rtol=1e-5, atol=1e-6)
    assert np.abs(np.asarray(images) - 0.5).max(axis=(1, 2, 3)) == pytest.approx(0.5)  # each reaches an end


@pytest.mark.parametrize("channels", [1, 2])
def test_of_other_numbers_of_channels_the_mean_is_blue_white_and_red(channels):
    units = np.zeros((4 * channels, 3), np.float32)
    units[:, 1] = np.repeat([-2.0, 0.0, 1.0, 4.0], channels)
    images = np.asarray(filters.unit_filters(units, (2, 2, channels))["first_layer"])
    assert images.shape == (3, 2, 2, 3)
    blue, white, pale, red = images[0].reshape(4, 3).tolist()  # of the unit with the most weights
    assert (blue, white, pale, red) == ([0.5, 0.5, 1], [1, 1, 1], [1, 0.75, 0.75], [1, 0, 0])
    np.testing.assert_array_equal(images[1:], 1)  # units without weights
