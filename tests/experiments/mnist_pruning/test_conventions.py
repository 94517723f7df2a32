"""What the paper leaves open: inputs, initialisation, and how lam and the operator may be meant."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experiments.mnist_pruning.conventions import INITIALISATIONS, INPUTS, OF_OPERATOR, OPEN, in_name

import ops
from experiments.core.input import dataset as data_lib
from experiments.mnist_pruning.methods import METHODS
from tests.experiments.support import small_config

W = jnp.linspace(-0.97, 0.93, 20)


def test_inputs_are_scaled_as_their_name_says():
    data = data_lib.load(small_config())
    pixels = data.train["image"].astype(np.float64)
    shift, scale = INPUTS["standardised"](data)
    assert pixels.mean() == pytest.approx(shift, abs=1e-5)
    assert pixels.std() == pytest.approx(scale)
    for name, range_of_it in {"unit": (0.0, 1.0), "symmetric": (-1.0, 1.0), "raw": (0.0, 255.0)}.items():
        shift, scale = INPUTS[name](data)
        assert tuple((pixel - shift) / scale for pixel in (0.0, 255.0)) == range_of_it


def test_kernels_start_as_wide_as_their_name_says():
    kernels = {
        name: initialisation()(jax.random.key(0), (400, 100)) for name, initialisation in INITIALISATIONS.items()
    }
    widths = {name: float(kernel.std()) for name, kernel in kernels.items()}
    expected = {"lecun_normal": 0.05, "glorot_uniform": (2 / 500) ** 0.5, "normal_0.1": 0.1, "normal_0.01": 0.01}
    assert widths == pytest.approx(expected | {"torch": 0.05 / 3**0.5}, rel=0.02)
    assert float(jnp.abs(kernels["torch"]).max()) == pytest.approx(0.05, rel=1e-2)


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


def test_names_of_variants_are_names_of_directories():
    assert in_name("inputs in [0, 1]") == "inputs-in-0-1"
    names = [in_name(variant) for variant in OPEN | OF_OPERATOR]
    assert len(set(names)) == len(names)
