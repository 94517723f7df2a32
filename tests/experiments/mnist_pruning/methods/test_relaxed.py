"""The relaxed operator: the forms that the paper may mean, and which settings are refused."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ops
from experiments.core.errors import UsageError
from experiments.mnist_pruning import experiment
from experiments.mnist_pruning.methods import METHODS
from tests.experiments.support import small_config
from tests.ops import oracles

W = jnp.linspace(-0.97, 0.93, 20)


def relaxed(w, **fields):
    method = METHODS["relaxed"].make(small_config("relaxed", density=0.3, lam__start=0.3, **fields), 10)
    return method.weights(w, {}, jnp.float32(0), None)


def test_forms_are_the_operator_or_the_mask_times_the_weights():
    w = np.asarray(W)
    np.testing.assert_allclose(relaxed(W, form="mask"), w * oracles.pooled(np.abs(w), 6, 0.3), rtol=1e-5)
    np.testing.assert_allclose(relaxed(W, form="mask_of_squares"), w * oracles.pooled(w**2, 6, 0.3), rtol=1e-5)
    kept = oracles.pooled(w, 6, 0.3, kind="mag")
    np.testing.assert_allclose(relaxed(W, form="stop_gradient"), kept, rtol=1e-5)
    slopes = jax.jacobian(lambda w: relaxed(w, form="stop_gradient"))(W)
    np.testing.assert_allclose(slopes, np.diag(kept / w), atol=1e-6)


def test_straight_through_it_is_hard_forward_and_relaxed_backward():
    config = small_config("straight_through", density=0.3, lam__start=0.3)
    method = METHODS["straight_through"].make(config, 10)
    weights, pull_back = jax.vjp(lambda w: method.weights(w, {}, jnp.float32(0), None), W)
    np.testing.assert_array_equal(weights, ops.hard_topk_mag(W, 6))
    pull = jnp.arange(20.0)
    (expected,) = jax.vjp(relaxed, W)[1](pull)
    np.testing.assert_allclose(pull_back(pull)[0], expected, rtol=1e-5)
    assert np.count_nonzero(expected) > 6


def test_lam_may_be_a_mean_over_weights():
    kept = oracles.pooled(np.asarray(W), 6, 20 * 0.3, kind="mag")
    np.testing.assert_allclose(relaxed(W, lam_times_size=True), kept, rtol=1e-5)


def test_the_support_falls_as_a_cubic_until_it_is_hard():
    size = 640
    w, fields = jax.random.normal(jax.random.key(0), (size,)), {"lam__schedule": "support", "hard_after": 0.8}
    method = METHODS["relaxed"].make(small_config("relaxed", p=4 / 3, debias=True, **fields), 10)
    found = [np.count_nonzero(method.weights(w, {}, jnp.float32(progress), None)) for progress in (0, 0.4, 0.8, 1)]
    assert found == [size, pytest.approx((0.1 + 0.9 * 0.5**3) * size, abs=2), 64, 64]


@pytest.mark.parametrize(
    ("fields", "wrong", "why"),
    [
        ({"form": "mask"}, {"debias": True}, "False with form='mask'"),
        ({"form": "mask_of_squares"}, {"debias": True}, "False with form='mask_of_squares'"),
        ({"lam.schedule": "support"}, {"form": "mask"}, "operator with lam.schedule='support'"),
        ({"lam.schedule": "support"}, {"density_schedule.name": "cubic"}, "constant with lam.schedule='support'"),
        *(
            ({"form": "published_jacobian"}, {field: value}, f"{only} with form='published_jacobian'")
            for field, value, only in (("p", 1.5, 2.0), ("debias", True, False), ("hard_after", 0.9, 1.0))
        ),
    ],
)
def test_what_a_form_or_schedule_has_not_is_refused(fields, wrong, why):
    config = small_config("relaxed")
    config.update_from_flattened_dict(fields | wrong)
    ((field, value),) = wrong.items()
    with pytest.raises(UsageError, match=re.escape(f"config.{field}={value!r} is not allowed: it must be {why}")):
        experiment.RECIPE.validate(config)
