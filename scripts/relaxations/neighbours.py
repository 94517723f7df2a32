"""Learning a distance for nearest neighbours: a task in which a selection stands between parameters and loss.

A linear map of an image's pixels is learned such that the 9 nearest of 1,000 images vote for its label. Training
minimises the squared error of the votes, which are weighed by the relaxed mask of the distances, in units of their
spread. The width of the mask is chosen on images held out of training. Then the map is learned again with other seeds,
and a hard classifier, which gives each of the 9 nearest one vote, is tested on the test images.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from experiments.core.input import sources
from experiments.core.input.examples import InMemory
from experiments.core.record.summary import interval
from scripts.bench.process import Found
from scripts.bench.timing import Contest
from scripts.relaxations.methods import RELAXATIONS, Mask, strength_of

UNTRAINED = "before learning"
"""The name of the map that learning begins with."""


class Settings(NamedTuple):
    """Data, network and training, the seeds that choose a width, and the final seeds that are reported."""

    data: str = "mnist"
    neighbours: int = 9
    base: int = 1000
    held_out: int = 5000
    batch_size: int = 128
    features: int = 32
    steps: int = 400
    learning_rate: float = 1e-3
    widths: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0)
    choosing: tuple[int, ...] = (100, 101, 102)
    final: tuple[int, ...] = tuple(range(10))
    random_samples: int = 10  # few, because training takes thousands of masks


SMALL = Settings("digits", base=100, held_out=300, steps=2, widths=(0.3,), choosing=(100,), final=(0, 1))


class _Images(NamedTuple):
    pixels: Array  # [N, pixels], centred
    labels: Array


def measure(name: str, settings: Settings, contest: Contest) -> Found:
    """Returns the test error in percent by seed, at the width that is best on validation, and all errors there."""
    base, training, validation, test = _data(settings)

    @jax.jit
    def error(projection: Array, images: _Images) -> Array:
        def of_part(part: tuple[Array, Array]) -> Array:
            nearest = lax.top_k(_scores(projection, part[0], base.pixels), settings.neighbours)[1]
            votes = jax.nn.one_hot(base.labels[nearest], 10).sum(axis=1)
            return 100.0 * (votes.argmax(axis=-1) != part[1]).mean()

        parts = jax.tree.map(lambda leaf: leaf.reshape(-1, min(len(leaf), 500), *leaf.shape[1:]), tuple(images))
        return lax.map(of_part, parts).mean()

    if name == UNTRAINED:
        found: list[float | None] = [float(error(_drawn(seed, base, settings), test)) for seed in settings.final]
        return {"neighbours": {name: {"test_error": interval(found)}}}

    def mask_of(key: Array) -> Mask:
        """Returns the mask of a step; a random one has the noise of the step's key."""
        relaxation = RELAXATIONS[name]
        return relaxation.drawn(settings.random_samples, key) if relaxation.drawn else relaxation.mask

    learn = jax.jit(functools.partial(_learned, mask_of, base, training, settings))
    tried: dict[float, tuple[float, dict[str, Any]]] = {}
    for width in settings.widths:
        strength = strength_of(name, settings.base, settings.neighbours, width)
        if strength is None:
            continue
        maps = [learn(seed, strength) for seed in settings.choosing]
        tried[width] = strength, interval([float(error(one, validation)) for one in maps])
    best = min(tried, key=lambda width: tried[width][1]["mean"])
    found = [float(error(learn(seed, tried[best][0]), test)) for seed in settings.final]
    errors = {f"{width:g}": measured for width, (_, measured) in tried.items()}
    return {"neighbours": {name: {"width": best, "validation_error": errors, "test_error": interval(found)}}}


def _data(settings: Settings) -> tuple[_Images, _Images, _Images, _Images]:
    """Returns the images to compare with, to train, to validate and to test on: disjoint, in their given order."""
    source = sources.digits() if settings.data == "digits" else sources.from_tfds(settings.data, None, download=False)
    parts = []
    for split in (source.train, source.test):
        assert isinstance(split, InMemory)  # small images are in memory
        examples = split.arrays
        pixels = examples["image"].reshape(len(split), -1).astype(np.float32) / 255.0
        parts.append((pixels, examples["label"].astype(np.int32)))
    (pixels, labels), (test_pixels, test_labels) = parts
    mean, bounds = pixels.mean(axis=0), (settings.base, len(labels) - settings.held_out)
    whole = len(test_labels) // 100 * 100
    base, training, validation = (
        _Images(jnp.asarray(images), jnp.asarray(classes))
        for images, classes in zip(np.split(pixels - mean, bounds), np.split(labels, bounds), strict=True)
    )
    return (
        base,
        training,
        validation,
        _Images(jnp.asarray(test_pixels[:whole] - mean), jnp.asarray(test_labels[:whole])),
    )


def _scores(projection: Array, queries: Array, base: Array) -> Array:
    """Returns minus the squared distances in units of their spread around a query, ``[queries, base]``."""
    a, b = queries @ projection, base @ projection
    distances = jnp.sum(a**2, axis=1, keepdims=True) - 2.0 * a @ b.T + jnp.sum(b**2, axis=1)[None]
    return -distances / lax.stop_gradient(distances.std(axis=1, keepdims=True))


def _drawn(seed: int | Array, base: _Images, settings: Settings) -> Array:
    """Returns the map before learning."""
    size = base.pixels.shape[1]
    return jax.random.normal(jax.random.key(seed), (size, settings.features)) / size**0.5


def _learned(
    mask_of: Callable[[Array], Mask],
    base: _Images,
    training: _Images,
    settings: Settings,
    seed: int | Array,
    strength: Array,
) -> Array:
    """Returns the map after learning."""
    optimizer = optax.adam(settings.learning_rate)
    targets = jax.nn.one_hot(base.labels, 10)

    def loss(projection: Array, queries: Array, labels: Array, key: Array) -> Array:
        weights = mask_of(key)(_scores(projection, queries, base.pixels), settings.neighbours, strength)
        votes = weights @ targets / settings.neighbours
        return jnp.mean(jnp.sum((votes - jax.nn.one_hot(labels, 10)) ** 2, axis=1))

    def step(state: tuple[Array, optax.OptState], key: Array) -> tuple[tuple[Array, optax.OptState], None]:
        projection, momenta = state
        chosen = jax.random.randint(key, (settings.batch_size,), 0, len(training.labels))
        gradient = jax.grad(loss)(projection, training.pixels[chosen], training.labels[chosen], key)
        with jax.numpy_dtype_promotion("standard"):
            updates, momenta = optimizer.update(gradient, momenta)
        return (optax.apply_updates(projection, updates), momenta), None

    start = _drawn(seed, base, settings)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 1), settings.steps)
    return lax.scan(step, (start, optimizer.init(start)), keys)[0][0]
