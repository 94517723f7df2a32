"""Schedules of lam at their ends and on the way."""

import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest

from experiments.core.training.schedules import lam_schedule

PROGRESS = (0.0, 0.2, 0.5, 0.799, 0.8, 1.0)


def lam(schedule, **options):
    made = lam_schedule(ml_collections.ConfigDict({"schedule": schedule, "start": 3.0, "end": 1e-3}), **options)
    return [float(made(jnp.float32(progress))) for progress in PROGRESS]


@pytest.mark.parametrize(
    ("schedule", "formula"), [("constant", lambda t: 3.0), ("geometric", lambda t: 3.0 * (1e-3 / 3.0) ** t)]
)
def test_lam_follows_its_formula_and_is_zero_from_where_it_is_to_be_hard(schedule, formula):
    np.testing.assert_allclose(lam(schedule), [formula(t) for t in PROGRESS], rtol=1e-5)
    part = [formula(t / 0.8) if t < 0.8 else 0.0 for t in PROGRESS]
    np.testing.assert_allclose(lam(schedule, hard_after=0.8), part, rtol=1e-5)
