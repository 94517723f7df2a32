"""Optimizers and schedules, against their formulas in NumPy."""

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest

from experiments.core.errors import UsageError
from experiments.core.training import optimizer


def config_of(steps=100, **fields):
    base = {"name": "sgd", "learning_rate": 0.5, "momentum": 0.0}
    config = ml_collections.ConfigDict({"optimizer": base | fields})
    if steps:
        config.steps = steps
    optimizer.validate(config)
    return config


def warm_up(step, steps):
    return min(1.0, step / steps)


SCHEDULES = {
    "constant": ({"warmup_steps": 8}, lambda t: 0.5 * warm_up(t, 8)),
    "cosine": ({"schedule": "cosine"}, lambda t: 0.25 * (1 + np.cos(np.pi * t / 100))),
    "cosine after warm-up": (
        {"schedule": "cosine", "warmup_steps": 20},
        lambda t: 0.5 * warm_up(t, 20) if t < 20 else 0.25 * (1 + np.cos(np.pi * (t - 20) / 80)),
    ),
    "linear": (
        {"schedule": "linear", "warmup_steps": 20},
        lambda t: 0.5 * warm_up(t, 20) if t < 20 else 0.5 * (100 - t) / 80,
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_follow_their_formula(name):
    fields, formula = SCHEDULES[name]
    config = config_of(**fields)
    steps = (0, 1, 7, 8, 19, 20, 21, 60, 99, 100)
    rates = [optimizer.learning_rate(config, step) for step in steps]
    np.testing.assert_allclose(rates, [formula(step) for step in steps], rtol=1e-5, atol=1e-7)


PARAMS = {"w": jnp.asarray([[1.0, -2.0], [0.5, 3.0]]), "b": jnp.asarray([2.0, -1.0])}
GRADIENT = {"w": jnp.asarray([[3.0, 0.0], [0.0, 1.0]]), "b": jnp.asarray([4.0, 0.5])}


def first_update(config):
    transformation = optimizer.make(config)
    with jax.numpy_dtype_promotion("standard"):
        return jax.jit(lambda: transformation.update(GRADIENT, transformation.init(PARAMS), PARAMS)[0])()


# Momentum, clipping and Adam's moments are held to the papers' updates in tests/configs.
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_weight_decay_is_decoupled(name):
    plain = first_update(config_of(name=name))
    everything = first_update(config_of(name=name, weight_decay=0.1))
    matrices = first_update(config_of(name=name, weight_decay=0.1, decayed="matrices"))
    for leaf in ("w", "b"):
        np.testing.assert_allclose(everything[leaf], plain[leaf] - 0.5 * 0.1 * PARAMS[leaf], rtol=1e-5)
    np.testing.assert_allclose(matrices["w"], everything["w"])
    np.testing.assert_allclose(matrices["b"], plain["b"])


def test_stacked_layers_decay_as_unstacked():
    config = config_of(weight_decay=0.1, decayed="matrices")
    layers = {"w": jnp.ones((3, 2, 2)), "b": jnp.ones((3, 2))}
    params = {"layers": {"inner": layers}, "head": {"w": jnp.ones((2, 2)), "b": jnp.ones(2)}}
    transformation = optimizer.make(config, stacked=("layers",))
    zeros = jax.tree.map(jnp.zeros_like, params)
    found = jax.jit(lambda: transformation.update(zeros, transformation.init(params), params)[0])()
    decayed = jax.tree.map(lambda update: bool(jnp.any(update)), found)
    assert decayed == {"layers": {"inner": {"w": True, "b": False}}, "head": {"w": True, "b": False}}


def test_a_choice_that_there_is_not_is_named():
    """Others are in `test_hostile_commands.py`."""
    with pytest.raises(UsageError, match=r"^config\.optimizer\.decayed=.* must be "):
        config_of(decayed="kernels")


def test_schedule_length_may_be_an_argument():
    """Runs in epochs know their steps only once the data are there."""
    config = config_of(None, schedule="cosine", warmup_steps=20)
    assert optimizer.learning_rate(config, 60, 100) == pytest.approx(0.25)
    with pytest.raises(UsageError, match=r"^config\.optimizer\.warmup_steps=20 .* less than the 20 steps of the run$"):
        optimizer.make(config, 20)


PROGRESS = (0.0, 0.2, 0.5, 0.799, 0.8, 1.0)


def lam(schedule, **options):
    made = optimizer.lam_schedule(
        ml_collections.ConfigDict({"schedule": schedule, "start": 3.0, "end": 1e-3}), **options
    )
    return [float(made(jnp.float32(progress))) for progress in PROGRESS]


@pytest.mark.parametrize(
    ("schedule", "formula"), [("constant", lambda t: 3.0), ("geometric", lambda t: 3.0 * (1e-3 / 3.0) ** t)]
)
def test_lam_schedules_follow_their_formula(schedule, formula):
    np.testing.assert_allclose(lam(schedule), [formula(t) for t in PROGRESS], rtol=1e-5)
    part = [formula(t / 0.8) if t < 0.8 else 0.0 for t in PROGRESS]
    np.testing.assert_allclose(lam(schedule, hard_after=0.8), part, rtol=1e-5)
