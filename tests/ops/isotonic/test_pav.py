"""The layout in which halves are merged, and how many passes over the data that takes."""

import jax
import numpy as np

from ops.isotonic import pav
from ops.isotonic.pav import pool_adjacent_violators
from ops.isotonic.problem import Problem
from ops.nonlinearities import IDENTITY
from tests.ops.isotonic.certificate import adversarial


def test_a_merge_takes_a_few_passes(monkeypatch):
    # All segments wait for the slowest one. Where rounding of the sums is followed, that takes up to 70 passes.
    evaluations, find_root = [], pav.find_root

    def counted(*arguments, **options):
        root = find_root(*arguments, **options)
        jax.debug.callback(lambda passes: evaluations.append(int(passes.max())), root.evaluations)
        return root

    monkeypatch.setattr(pav, "find_root", counted)
    s = np.asarray(adversarial(300), np.float32)
    w = np.broadcast_to(np.linspace(1, 0, 300, dtype=np.float32), s.shape)
    pool_adjacent_violators(Problem(4 / 3, IDENTITY), s, w, np.full((len(s), 1), 0.1, np.float32))
    jax.effects_barrier()
    assert len(evaluations) == 9
    assert max(evaluations) <= 16
