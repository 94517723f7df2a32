"""Planted faults are noticed, with a line that reproduces them; and the draws are as wide as they should be."""

import os
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ops
from tests.ops.problems import entries, judge
from tests.ops.problems.judge import Tally, attempt
from tests.ops.problems.setting import Setting

SPARSEMAX = Setting("sparsemax", n=6)


@pytest.mark.skipif("PROBLEM" not in os.environ, reason="PROBLEM is a line that `make fuzz` printed")
def test_the_problem_of_a_line():
    assert judge.again(os.environ["PROBLEM"]) == ""


def test_planted_faults_can_be_reproduced(monkeypatch):
    right = ops.sparsemax

    def dies(x, y):
        raise TypeError("no such thing\nand more")

    def values(x, y):
        return jnp.where(x > 2.5, jnp.nan, jnp.where(x > 0.5, y * 1.00001, y))

    def slopes(x, y):
        return y + 1e-3 * (x - jax.lax.stop_gradient(x)) + 0 * jnp.sqrt(jnp.where(x > 2.5, 0 * x, 1))

    for wrong, faults in (
        (dies, ["TypeError: no such thing"]),
        (values, [r"row \d+: value \[\d\] \d", r"row \d+: value \[\d\] nan"]),
        (slopes, [r"row \d+: d/dx \[\d\] -?\d", r"row \d+: d/dx \[\d\] nan"]),
    ):
        monkeypatch.setattr(ops, "sparsemax", lambda x, wrong=wrong, **options: wrong(x, right(x, **options)))
        attempt(tally := Tally(), SPARSEMAX, seed=0)
        for fault in faults:
            failure = next(failure for failure in tally.failures if re.search(fault, failure))
    line = failure.partition("PROBLEM=")[2].strip("'")
    assert re.search(fault, judge.again(line))
    monkeypatch.undo()
    assert judge.again(line) == ""


def test_what_is_drawn():
    rows = entries.draw(Setting("topk_mask", n=8, rows=4096), 0)
    size = np.abs(rows.x[np.isfinite(rows.x) & (rows.x != 0)])
    assert size.min() < 1e-29
    assert size.max() > 1e30
    assert 0.9 < rows.inside.mean() < 0.99
    assert (rows.lam == 0).mean() > 0.03
    assert rows.lam[rows.lam > 0].min() < 1e-11
    assert rows.lam.max() > 1e11
    assert np.isnan(rows.x).any()
    assert np.isinf(rows.x).any()
    assert ((rows.k > 0) & (rows.k < 0.01)).any()
    assert all((rows.k == k).any() for k in (0, 1, 8))
    assert rows.k.max() == 8
