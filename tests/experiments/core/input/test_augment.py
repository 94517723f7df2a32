"""Augmentation on the device: its laws, and independence of how a batch is divided."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from experiments.core.input import augment, images
from tests.experiments.core.input.crops import crops_of


@pytest.fixture
def batch():
    return np.random.default_rng(0).integers(1, 256, (64, 32, 32, 3), np.uint8)


def test_normalise_maps_the_range_of_bytes_to_minus_one_to_one():
    values = augment.normalise(jnp.arange(256, dtype=jnp.uint8))
    assert values.dtype == jnp.float32
    np.testing.assert_allclose(values, np.arange(256) / 255 * 2 - 1, atol=2e-7)


def test_crop_flip_shifts_and_flips_half_the_time(batch):
    many = np.broadcast_to(batch[0], (2000, *batch[0].shape))
    results = jax.jit(augment.crop_flip, static_argnums=2)(jax.random.key(0), many, 32)
    crops = crops_of(batch[0])
    levels = np.rint((np.asarray(results) + 1) * 127.5).astype(np.uint8)
    found = [crops[result.tobytes()] for result in levels]
    assert len(set(found)) == 162
    assert abs(np.mean([flipped for _, _, flipped in found]) - 0.5) < 0.05


def test_inception_boxes_have_the_law_of_the_host():
    keys = jax.random.split(jax.random.key(0), 4000)
    boxes = jax.jit(jax.vmap(functools.partial(augment.inception_box, height=300, width=400)))(keys)
    top, left, height, width = np.asarray(boxes)
    assert min(top.min(), left.min()) >= 0
    assert (top + height).max() <= 300.01
    assert (left + width).max() <= 400.01
    assert 0.7499 < (width / height).min() < 0.76
    rng = np.random.default_rng(0)
    host = np.array([images.inception_box(rng, 300, 400) for _ in range(4000)])
    percentiles = [0, 5, 25, 50, 75, 95]
    np.testing.assert_allclose(
        np.percentile(boxes, percentiles, axis=1), np.percentile(host, percentiles, axis=0), atol=11
    )


def test_inception_shows_the_parts_of_its_boxes():
    # Two ramps: red is the position in x, green that in y.
    ramp = np.linspace(20, 235, 64)
    image = np.stack([*np.meshgrid(ramp, ramp), np.zeros((64, 64))], axis=-1).astype(np.uint8)
    results = jax.jit(augment.inception, static_argnums=2)(
        jax.random.key(1), np.broadcast_to(image, (400, *image.shape)), 16
    )
    levels = (np.asarray(results) + 1) * 127.5
    across = np.abs(levels[:, 8, 15, 0] - levels[:, 8, 0, 0])  # of 16 pixels' centres
    down = levels[:, 15, 8, 1] - levels[:, 0, 8, 1]
    area = across * down * (16 / 15) ** 2 / (ramp[-1] - ramp[0]) ** 2 * (63 / 64) ** 2
    assert 0.045 < area.min() < 0.07
    assert 0.8 < area.max() < 1.01
    flipped = levels[:, 8, 15, 0] < levels[:, 8, 0, 0]
    assert abs(flipped.mean() - 0.5) < 0.1


@pytest.mark.parametrize("name", augment.TRAIN)
def test_results_do_not_depend_on_the_devices(batch, name):
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


@pytest.mark.parametrize(("name", "size"), [("inception", 20), *((name, 48) for name in augment.EVALUATION)])
def test_evaluation_is_the_hosts_before_rounding(batch, name, size):
    levels = (np.asarray(augment.EVALUATION[name](jnp.asarray(batch[:4, :, :28]), size)) + 1) * 127.5
    host = np.stack([images.EVALUATION[name](image, size) for image in batch[:4, :, :28]])
    np.testing.assert_allclose(levels, host, atol=1.1)
