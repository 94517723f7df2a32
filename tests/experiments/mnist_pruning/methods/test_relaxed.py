"""The relaxed operator: the forms that the paper may mean, and which settings are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ops
from experiments.core.errors import UsageError
from experiments.mnist_pruning import experiment
from experiments.mnist_pruning.methods import METHODS
from tests.experiments.support import small_config

W = jnp.linspace(-0.97, 0.93, 20)


def relaxed(w, **fields):
    method = METHODS["relaxed"].make(small_config("relaxed", density=0.3, lam__start=0.3, **fields), 10)
    return method.weights(w, {}, jnp.float32(0), None)


def test_forms_are_the_operator_or_the_mask_times_the_weights():
    mask = ops.topk_mask(jnp.abs(W), 6, lam=0.3)
    np.testing.assert_allclose(relaxed(W, form="mask"), W * mask, rtol=1e-5)
    squares = ops.topk_mask(jnp.square(W), 6, lam=0.3)
    np.testing.assert_allclose(relaxed(W, form="mask_of_squares"), W * squares, rtol=1e-5)
    kept = ops.topk_mag(W, 6, lam=0.3)
    np.testing.assert_allclose(relaxed(W, form="stop_gradient"), kept, rtol=1e-5)
    slopes = jax.jacobian(lambda w: relaxed(w, form="stop_gradient"))(W)
    np.testing.assert_allclose(slopes, np.diag(np.asarray(kept / W)), atol=1e-6)


def test_lam_may_be_a_mean_over_weights():
    np.testing.assert_allclose(relaxed(W, lam_times_size=True), ops.topk_mag(W, 6, lam=20 * 0.3), rtol=1e-5)


@pytest.mark.parametrize("form", ["mask", "mask_of_squares"])
def test_a_mask_is_not_rescaled(form):
    with pytest.raises(UsageError, match=rf"debias=True is not allowed: it must be False with form='{form}'"):
        experiment.RECIPE.validate(small_config("relaxed", form=form, debias=True))
