"""The layout in which halves are merged, and how many passes over the data that takes."""

import jax
import numpy as np
import pytest

from ops.isotonic import merging
from ops.isotonic.merging import Segments, bit_reversed
from ops.isotonic.pav import pool_adjacent_violators
from ops.isotonic.problem import Problem
from ops.nonlinearities import IDENTITY
from tests.ops.isotonic.certificate import adversarial

ROWS, LEVELS = 2, 5
N = 1 << LEVELS


@pytest.mark.parametrize("levels", range(7))
def test_bits_are_reversed(levels):
    n = 1 << levels
    x = np.arange(2 * n).reshape(2, n)
    places = [int(f"{i:b}".zfill(levels)[::-1], 2) if levels else 0 for i in range(n)]
    np.testing.assert_array_equal(bit_reversed(x), x[:, places])
    np.testing.assert_array_equal(bit_reversed(bit_reversed(x)), x)


@pytest.mark.parametrize("level", range(LEVELS))
def test_segments_are_runs_of_neighbours(level):
    segments = Segments(N, level, LEVELS)
    x = np.random.default_rng(level).normal(size=(ROWS, N))
    laid_out, count, size = bit_reversed(x), N >> (level + 1), 2 << level
    runs = x.reshape(ROWS, count, size)
    # Scalars of segments are in bit-reversed order, too.
    (total,) = segments.sum(laid_out)
    np.testing.assert_allclose(bit_reversed(total[:, :count]), runs.sum(axis=2), rtol=1e-6, atol=1e-6)
    (spread,) = segments.spread(total)
    np.testing.assert_allclose(bit_reversed(spread), np.repeat(runs.sum(axis=2), size, axis=1), rtol=1e-6, atol=1e-6)
    for found, place in zip(segments.middle(laid_out), (size // 2 - 1, size // 2), strict=True):
        np.testing.assert_allclose(bit_reversed(found[:, :count]), runs[:, :, place], rtol=1e-6)
    if level:
        for found, place in zip(segments.around_middle(laid_out), (size // 2 - 2, size // 2 + 1), strict=True):
            np.testing.assert_allclose(bit_reversed(found[:, :count]), runs[:, :, place], rtol=1e-6)
    left = np.broadcast_to(bit_reversed(np.broadcast_to(segments.is_left(), (ROWS, N))), (ROWS, N))
    np.testing.assert_array_equal(left, np.broadcast_to(np.arange(N) % size < size // 2, (ROWS, N)))
    np.testing.assert_array_equal(segments.exists()[0], np.arange(N // 2) < count)


@pytest.mark.parametrize("p", [2.0, 4 / 3])
def test_a_merge_takes_a_few_passes(p, monkeypatch):
    # All segments wait for the slowest one. Where rounding of the sums is followed, that takes up to 70 passes.
    evaluations, find_root = [], merging.find_root

    def counted(*arguments, **options):
        root = find_root(*arguments, **options)
        jax.debug.callback(lambda passes: evaluations.append(int(passes.max())), root.evaluations)
        return root

    monkeypatch.setattr(merging, "find_root", counted)
    s = np.asarray(adversarial(300), np.float32)
    w = np.broadcast_to(np.linspace(1, 0, 300, dtype=np.float32), s.shape)
    pool_adjacent_violators(Problem(p, IDENTITY), s, w, np.full((len(s), 1), 0.1, np.float32))
    jax.effects_barrier()
    assert len(evaluations) == 9
    assert max(evaluations) <= 16
