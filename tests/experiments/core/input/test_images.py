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


@pytest.mark.parametrize("name", ["inception", "crop_flip", "none"])
def test_evaluation_is_a_plain_resize(photo, name):
    np.testing.assert_allclose(images.PREPROCESSING[name].evaluation(photo, 24), _resized(photo, 24, 24), atol=1.1)


def test_big_vision_evaluates_the_middle_of_a_resize_that_keeps_the_aspect(photo):
    expected = _resized(photo, 56, 84)[4:52, 18:66]
    np.testing.assert_allclose(images.PREPROCESSING["big_vision"].evaluation(photo, 48), expected, atol=1.1)
    assert images.small_side(384) == 448


def test_inception_boxes_keep_the_limits_and_reach_them():
    rng = np.random.default_rng(0)
    boxes = np.array([images.inception_box(rng, 300, 400) for _ in range(4000)])
    top, left, height, width = boxes.T
    assert top.min() >= 0
    assert left.min() >= 0
    assert (top + height).max() <= 300
    assert (left + width).max() <= 400
    area = height * width / (300 * 400)
    assert 0.05 <= area.min() < 0.052
    assert 0.9 < area.max() <= 1.0
    # The sides are whole pixels: the width is within half a pixel of the aspect's.
    assert (width >= height * 3 / 4 - 0.5).all()
    assert (width <= height * 4 / 3 + 0.5).all()
    assert (width / height).min() < 0.76
    assert (width / height).max() > 1.32


def test_inception_boxes_are_distributed_as_tensorflows():
    # Percentiles 5, 25, 50, 75 and 95 of 3,000 boxes in 300 x 400 by tf.image.sample_distorted_bounding_box.
    rng = np.random.default_rng(1)
    boxes = np.array([images.inception_box(rng, 300, 400) for _ in range(4000)])
    percentiles = np.percentile(boxes, [5, 25, 50, 75, 95], axis=0).T
    np.testing.assert_allclose(percentiles[0], [1, 14, 41, 83, 154], atol=8)
    np.testing.assert_allclose(percentiles[1], [7, 41, 90, 151, 235], atol=10)
    np.testing.assert_allclose(percentiles[2], [88, 134, 191, 244, 289], atol=8)
    np.testing.assert_allclose(percentiles[3], [89, 135, 190, 249, 327], atol=8)


def test_an_image_too_long_for_a_box_is_taken_whole():
    assert images.inception_box(np.random.default_rng(0), 1, 100) == (0, 0, 1, 100)


def test_crop_flip_shifts_by_all_offsets_and_flips_half_the_time():
    rng = np.random.default_rng(0)
    image = rng.integers(1, 256, (32, 32, 3), np.uint8)
    padded = np.zeros((40, 40, 3), np.uint8)
    padded[4:36, 4:36] = image
    crops = {
        (view[top : top + 32, left : left + 32]).tobytes(): (top, left, flipped)
        for flipped, view in ((False, padded), (True, padded[:, ::-1]))
        for top in range(9)
        for left in range(9)
    }
    found = [crops[images.PREPROCESSING["crop_flip"].train(rng, image, 32).tobytes()] for _ in range(2000)]
    assert len(set(found)) == 162
    assert abs(np.mean([flipped for _, _, flipped in found]) - 0.5) < 0.05


@pytest.mark.parametrize("name", images.PREPROCESSING)
@pytest.mark.parametrize("shape", [(40, 60, 3), (32, 32, 3), (50, 28, 1)])
@pytest.mark.parametrize("size", [16, 48])
def test_results_are_squares_of_uint8(name, shape, size):
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, shape, np.uint8)
    for result in (
        images.PREPROCESSING[name].train(rng, image, size),
        images.PREPROCESSING[name].evaluation(image, size),
    ):
        assert result.shape == (size, size, shape[2])
        assert result.dtype == np.uint8


@pytest.mark.parametrize("name", ["inception", "big_vision"])
def test_flips_half_the_time(name):
    # Brightness rises from left to right, however cropped.
    image = np.tile(np.arange(0, 240, 6, np.uint8)[None, :, None], (40, 1, 3))
    rng = np.random.default_rng(0)
    results = [images.PREPROCESSING[name].train(rng, image, 16).astype(int) for _ in range(600)]
    assert abs(np.mean([result[0, 0, 0] > result[0, -1, 0] for result in results]) - 0.5) < 0.07
