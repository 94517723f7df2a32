"""Augmentation on the device: its laws, and independence of how a batch is divided."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from experiments.core.input import augment, images


def crops_of(image):
    """Where each crop of an image [32, 32, 3] comes from, by its bytes: top, left, flipped."""
    padded = np.zeros((40, 40, 3), np.uint8)
    padded[4:36, 4:36] = image
    return {
        view[top : top + 32, left : left + 32].tobytes(): (top, left, flipped)
        for flipped, view in ((False, padded), (True, padded[:, ::-1]))
        for top in range(9)
        for left in range(9)
    }


@pytest.fixture
def batch():
    return np.random.default_rng(0).integers(1, 256, (64, 32, 32, 3), np.uint8)


def test_normalise_gives_minus_one_to_one():
    values = augment.normalise(jnp.arange(256, dtype=jnp.uint8))
    assert values.dtype == jnp.float32
    np.testing.assert_allclose(values, np.arange(256) / 255 * 2 - 1, atol=2e-7)


def test_crop_flip_covers_shifts_and_flips(batch):
    many = np.broadcast_to(batch[0], (2000, *batch[0].shape))
    results = jax.jit(augment.crop_flip, static_argnums=2)(jax.random.key(0), many, 32)
    crops = crops_of(batch[0])
    levels = np.rint((np.asarray(results) + 1) * 127.5).astype(np.uint8)
    found = [crops[result.tobytes()] for result in levels]
    assert len(set(found)) == 162
    assert abs(np.mean([flipped for _, _, flipped in found]) - 0.5) < 0.05


@pytest.mark.parametrize("name", augment.TRAIN)
def test_results_do_not_depend_on_devices(batch, name):
    train = jax.jit(augment.TRAIN[name], static_argnums=2)
    whole = train(jax.random.key(0), batch, 32)
    assert whole.dtype == jnp.float32
    assert whole.shape == batch.shape
    assert float(jnp.abs(whole).max()) <= 1 + 1e-6
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    divided = jax.device_put(batch, NamedSharding(mesh, PartitionSpec("batch")))
    compiled = train.lower(jax.random.key(0), divided, 32).compile()
    np.testing.assert_array_equal(compiled(jax.random.key(0), divided), whole)
    assert "all-" not in compiled.as_text()


@pytest.mark.parametrize("size", [20, 48])
def test_resize_matches_the_host(batch, size):
    levels = (np.asarray(jax.jit(augment.resize, static_argnums=1)(batch[:4, :, :28], size)) + 1) * 127.5
    host = np.stack([images.EVALUATION["none"](image, size) for image in batch[:4, :, :28]])
    np.testing.assert_allclose(levels, host, atol=1.1)


def test_boxes_are_distributed_as_the_hosts():
    rng, number = np.random.default_rng(0), 20_000
    boxes = jax.jit(jax.vmap(lambda key: augment.inception_box(key, 32, 24)))(
        jax.random.split(jax.random.key(0), number)
    )
    found = np.stack(boxes)
    host = np.array([images.inception_box(rng, 32, 24) for _ in range(number)]).T
    for name, here, there in zip(("top", "left", "height", "width"), found, host, strict=True):
        places = np.arange(-0.5, 33)
        frequencies = [np.histogram(values, places)[0] / number for values in (here, there)]
        np.testing.assert_allclose(*frequencies, atol=0.012, err_msg=name)  # five deviations of the largest
    np.testing.assert_allclose(np.corrcoef(found), np.corrcoef(host), atol=0.04)


@pytest.mark.parametrize("size", [12, 48])
def test_inception_crop_matches_the_host(batch, size, monkeypatch):
    box = (3, 5, 20, 17)
    monkeypatch.setattr(augment, "inception_box", lambda key, height, width: tuple(map(jnp.float32, box)))
    # A function of its own, as jit would remember an unpatched one.
    crop = jax.jit(lambda key, images: augment.inception(key, images, size))
    levels = (np.asarray(crop(jax.random.key(0), batch[:8])) + 1) * 127.5
    host = np.stack([images.square(image[3:23, 5:22], size) for image in batch[:8]])
    turned = [np.abs(level - image).max() > 2 for level, image in zip(levels, host, strict=True)]
    assert 0 < sum(turned) < 8
    for level, image, flipped in zip(levels, host, turned, strict=True):
        np.testing.assert_allclose(level, image[:, ::-1] if flipped else image, atol=1.1)


def test_crops_are_parts_of_the_image(batch):
    many = np.broadcast_to(batch[0, :, :30], (500, 32, 30, 3))
    crop, central_crop = jax.jit(augment.crop, static_argnums=2), jax.jit(augment.central_crop, static_argnums=1)
    levels = np.rint((np.asarray(crop(jax.random.key(0), many, 28)) + 1) * 127.5).astype(np.uint8)
    parts = {
        part[:, ::-1].tobytes() if flipped else part.tobytes()
        for top in range(5)
        for left in range(3)
        for flipped in (False, True)
        for part in [np.ascontiguousarray(batch[0, top : top + 28, left : left + 28])]
    }
    assert {level.tobytes() for level in levels} == parts
    middle = (np.asarray(central_crop(batch, 28)) + 1) * 127.5
    np.testing.assert_allclose(middle, batch[:, 2:30, 2:30], atol=1e-3)
    with pytest.raises(ValueError, match="32 x 30 pixels have no part of 31 x 31"):
        crop(jax.random.key(0), many, 31)
