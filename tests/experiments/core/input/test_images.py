"""Preprocessing on the host: the laws of crops and flips, and resizing against a resizing of our own."""

import numpy as np
import pytest

from experiments.core.input import images


def _weights(source: int, result: int) -> np.ndarray:
    """Bilinear weights [result, source]: triangles at half-pixel centres, as wide as a pixel of the coarser side."""
    ratio = source / result
    width = max(ratio, 1.0)
    centres = (np.arange(result) + 0.5) * ratio - 0.5
    weights = np.maximum(0.0, 1.0 - np.abs(np.arange(source)[None] - centres[:, None]) / width)
    return weights / weights.sum(axis=1, keepdims=True)


def _resized(image: np.ndarray, height: int, width: int) -> np.ndarray:
    rows, columns = _weights(image.shape[0], height), _weights(image.shape[1], width)
    return np.einsum("yh,xw,hwc->yxc", rows, columns, image.astype(np.float64))


@pytest.fixture
def photo():
    return np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)


@pytest.mark.parametrize(("height", "width"), [(96, 96), (40, 60), (13, 17), (90, 20)])
@pytest.mark.parametrize("channels", [1, 3])
def test_resize_is_bilinear_with_antialias(photo, height, width, channels):
    image = photo[..., :channels]
    resized = images.resize(image, height, width)
    assert resized.dtype == np.uint8
    # Pillow rounds after each of its two passes.
    np.testing.assert_allclose(resized, _resized(image, height, width), atol=1.1)


@pytest.mark.parametrize("channels", [1, 3])
def test_evaluation_resizes_or_crops_centre(photo, channels):
    image = photo[..., :channels]
    whole, middle = _resized(image, 48, 48), _resized(image, 56, 84)[4:52, 18:66]
    for name, evaluation in images.EVALUATION.items():
        found = evaluation(image, 48)
        assert found.dtype == np.uint8
        np.testing.assert_allclose(found, middle if name == "big_vision" else whole, atol=1.1)
    assert images.resize_small(photo, 384).shape[0] == 448


def test_inception_boxes_match_tensorflow():
    rng = np.random.default_rng(1)
    boxes = np.array([images.inception_box(rng, 300, 400) for _ in range(4000)])
    top, left, height, width = boxes.T
    assert min(top.min(), left.min()) >= 0
    assert (top + height).max() <= 300
    assert (left + width).max() <= 400
    area = height * width / (300 * 400)
    assert 0.05 <= area.min() < 0.052
    assert 0.9 < area.max() <= 1.0
    # The sides are whole pixels: the width is within half a pixel of the aspect's.
    assert (width >= height * 3 / 4 - 0.5).all()
    assert (width <= height * 4 / 3 + 0.5).all()
    # Percentiles of 3,000 boxes in 300 x 400 by tf.image.sample_distorted_bounding_box.
    percentiles = np.percentile(boxes, [5, 25, 50, 75, 95], axis=0).T
    np.testing.assert_allclose(percentiles[0], [1, 14, 41, 83, 154], atol=8)
    np.testing.assert_allclose(percentiles[1], [7, 41, 90, 151, 235], atol=10)
    np.testing.assert_allclose(percentiles[2], [88, 134, 191, 244, 289], atol=8)
    np.testing.assert_allclose(percentiles[3], [89, 135, 190, 249, 327], atol=8)
    assert images.inception_box(rng, 1, 100) == (0, 0, 1, 100)  # an image too long for a box


@pytest.mark.parametrize("name", ["inception", "big_vision"])
def test_flips_half_the_time(name):
    # Brightness rises from left to right, however cropped.
    image = np.tile(np.arange(0, 240, 6, np.uint8)[None, :, None], (40, 1, 3))
    rng = np.random.default_rng(0)
    results = np.stack([images.TRAIN[name](rng, image, 16) for _ in range(600)])
    assert (results.shape, results.dtype) == ((600, 16, 16, 3), np.uint8)
    assert abs(np.mean(results[:, 0, 0, 0] > results[:, 0, -1, 0]) - 0.5) < 0.07
