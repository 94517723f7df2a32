"""Schedules at their ends and on the way, and mistakes in them."""

import jax.numpy as jnp
import ml_collections
import pytest

from experiments.core.errors import UsageError
from experiments.core.training.schedules import lam_schedule, validate_lam


def lam(schedule, **options):
    return lam_schedule(ml_collections.ConfigDict({"schedule": schedule, "start": 3.0, "end": 1e-3}), **options)


@pytest.mark.parametrize("progress", [0.0, 0.3, 1.0])
def test_constant_lam_stays_at_the_start(progress):
    assert float(lam("constant")(jnp.float32(progress))) == 3.0


@pytest.mark.parametrize(("progress", "value"), [(0.0, 3.0), (0.5, 0.003**0.5), (1.0, 1e-3)])
def test_geometric_lam(progress, value):
    assert float(lam("geometric")(jnp.float32(progress))) == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("schedule", ["constant", "geometric"])
def test_a_schedule_of_a_part_of_training_comes_to_its_end_there_and_is_hard_from_then_on(schedule):
    whole, part = lam(schedule), lam(schedule, hard_after=0.8)
    for progress in (0.0, 0.2, 0.6, 0.799):
        assert float(part(jnp.float32(progress))) == pytest.approx(float(whole(jnp.float32(progress / 0.8))), rel=1e-5)
    for progress in (0.8, 0.9, 1.0):
        assert float(part(jnp.float32(progress))) == 0.0


def test_mistakes_name_the_field():
    fields = ml_collections.ConfigDict({"schedule": "geometric", "start": 3.0, "end": 0.0})
    with pytest.raises(UsageError, match=r"config\.router\.lam\.end=0\.0"):
        validate_lam(fields, "router.lam")
