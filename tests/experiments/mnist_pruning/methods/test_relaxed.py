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


def test_relaxed_forms_match_oracle():
    def kept(w):
        return relaxed(w, form="stop_gradient")

    annealed = METHODS["relaxed"].make(
        small_config("annealed", density=0.3, hard_after=0.9, lam__start=3.0, lam__end=1.0), 10
    )

    @jax.jit
    def found(w):
        masks = [relaxed(w, form="mask"), relaxed(w, form="mask_of_squares")]
        at = jax.vmap(lambda progress: annealed.weights(w, {}, progress, None))(jnp.float32([0, 0.95]))
        values, pull_back = jax.vjp(kept, w)
        return masks, values, pull_back(jnp.arange(20.0))[0], relaxed(w, lam_times_size=True), at

    w, expected = np.asarray(W), oracles.pooled(np.asarray(W), 6, 0.3, kind="mag")
    (mask, of_squares), values, pulled, of_mean, (start, end) = found(W)
    np.testing.assert_allclose(mask, w * oracles.pooled(np.abs(w), 6, 0.3), rtol=1e-5)
    np.testing.assert_allclose(of_squares, w * oracles.pooled(w**2, 6, 0.3), rtol=1e-5)
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    np.testing.assert_allclose(pulled, np.arange(20) * expected / w, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(of_mean, oracles.pooled(w, 6, 20 * 0.3, kind="mag"), rtol=1e-5)
    assert np.count_nonzero(start) > 6
    np.testing.assert_array_equal(end, ops.hard_topk_mag(W, 6))


def test_hard_forward_relaxed_backward():
    config = small_config("straight_through", density=0.3, lam__start=0.3)
    method = METHODS["straight_through"].make(config, 10)
    pull = jnp.arange(20.0)

    @jax.jit
    def both(w):
        weights, pull_back = jax.vjp(lambda w: method.weights(w, {}, jnp.float32(0), None), w)
        return weights, pull_back(pull)[0], jax.vjp(relaxed, w)[1](pull)[0]

    weights, found, expected = both(W)
    np.testing.assert_array_equal(weights, ops.hard_topk_mag(W, 6))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.count_nonzero(expected) > 6


def test_support_schedule_falls_as_a_cubic():
    w, fields = jax.random.normal(jax.random.key(0), (640,)), {"lam__schedule": "support", "hard_after": 0.8}
    method = METHODS["relaxed"].make(small_config("relaxed", debias=True, **fields), 10)
    weights = jax.jit(jax.vmap(lambda progress: method.weights(w, {}, progress, None)))
    found = np.count_nonzero(weights(jnp.float32([0, 0.4, 0.8, 1])), axis=1).tolist()
    assert found == [640, pytest.approx((0.1 + 0.9 * 0.5**3) * 640, abs=2), 64, 64]


@pytest.mark.parametrize(
    ("fields", "wrong", "why"),
    [
        ({"form": "mask"}, {"debias": True}, "False with form='mask'"),
        ({"lam.schedule": "support"}, {"form": "mask"}, "operator with lam.schedule='support'"),
        ({"lam.schedule": "support"}, {"density_schedule.name": "cubic"}, "constant with lam.schedule='support'"),
        *(
            ({"form": "published_jacobian"}, {field: value}, f"{only} with form='published_jacobian'")
            for field, value, only in (("p", 1.5, 2.0), ("debias", True, False), ("hard_after", 0.9, 1.0))
        ),
    ],
)
def test_incompatible_fields_are_refused(fields, wrong, why):
    config = small_config("relaxed")
    config.update_from_flattened_dict(fields | wrong)
    ((field, value),) = wrong.items()
    with pytest.raises(UsageError, match=re.escape(f"config.{field}={value!r} is not allowed: it must be {why}")):
        experiment.RECIPE.validate(config)
