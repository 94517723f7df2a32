"""What relaxations are compared by: the width of a step, the gradient of noise, a task with its validation split."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ops
from ops import baselines
from scripts.bench.contestants import Shape
from scripts.bench.timing import Budget, Contest
from scripts.relaxations import measure, methods, neighbours

X = np.float32([0.9, 0.5, 0.1, -0.2, -1.0])


def test_at_its_width_the_mask_of_p_2_rises_over_half_of_lam_where_nobody_else_is_near():
    # Near the first of the others, at 0.97, the two share 1: the one rises from 1/4 to 3/4 over lam / 2 above it.
    assert methods.strength_of("relaxed, p = 2", 4, 1, 0.05) == pytest.approx(0.05, rel=1e-3)
    # No mask of NeuralSort is above 3/4 and as wide: it would have been taken as one an eighth as wide.
    assert methods.strength_of("NeuralSort", 400, 28, 1.0) is None


@pytest.mark.parametrize("name", methods.NOISES)
def test_noise_has_a_width_of_1(name):
    noise = methods.NOISES[name]
    np.testing.assert_allclose(noise.cumulative(jnp.float32([-0.5, 0.5])), [0.25, 0.75], rtol=1e-5)
    samples = np.sort(noise.draw(jax.random.key(0), (10_000,), jnp.float32))
    np.testing.assert_allclose(noise.cumulative(samples), (np.arange(10_000) + 0.5) / 10_000, atol=0.02)


def test_the_mask_in_the_mean_over_noise_and_its_gradient_are_those_of_many_noisy_masks():
    weights, gaussian = jnp.float32([1.0, -1.0, 2.0, 0.5, -2.0]), methods.NOISES["gaussian"]
    value, gradient = jax.jit(jax.value_and_grad(lambda x: weights @ measure.noisy(x, 2, 0.5, 4000, gaussian)))(X)

    def plain(x):
        options = {"num_samples": 50_000, "key": jax.random.key(3)}
        return weights @ baselines.perturbed_topk_mask(x, 2, lam=methods.noise_of(0.5), **options)

    expected, derivative = jax.jit(jax.value_and_grad(plain))(X)
    np.testing.assert_allclose(value, expected, atol=0.05)
    np.testing.assert_allclose(gradient, derivative, atol=0.08)
    np.testing.assert_allclose(measure.noisy(X, 2, 1e-4, 3, gaussian), ops.hard_topk_mask(X, 2))


def test_a_mask_has_its_row_and_its_times(monkeypatch):
    name, shape = "relaxed, p = 2", Shape(2, 12, 3)
    monkeypatch.setattr(measure, "RELAXATIONS", {name: methods.RELAXATIONS[name]})
    (row,) = measure._masks(0.3, shape, 20, Contest())["masks"]
    assert (row["relaxation"], row["sum_error"] < 1e-5) == (name, True)
    assert row["not_zero"] == row["not_zero_float64"] < 12
    assert {0 < row[f"cosine_{noise}"]["mean"] <= 1 for noise in methods.NOISES} == {True}
    (row,) = measure._masks(1e-3, shape, 20, Contest())["masks"]
    assert row["cosine_uniform"]["per_seed"] == row["norm_uniform"]["per_seed"] == [None, None]
    monkeypatch.setattr(
        measure, "RELAXATIONS", {"NeuralSort": dataclasses.replace(methods.RELAXATIONS["NeuralSort"], longest=11)}
    )
    assert list(measure._times(shape, Budget(0.01, 1, 1), Contest())["left_out"]) == ["NeuralSort, (2, 12, 3)"]


def test_a_learned_distance_is_better_than_none_and_its_width_is_chosen_on_validation():
    settings = neighbours.SMALL._replace(steps=30, widths=(1e-3, 0.3), learning_rate=0.01)
    learned = neighbours.measure("relaxed, p = 2", settings, Contest())["neighbours"]["relaxed, p = 2"]
    before = neighbours.measure(neighbours.UNTRAINED, settings, Contest())["neighbours"][neighbours.UNTRAINED]
    assert learned["test_error"]["mean"] < before["test_error"]["mean"] - 2
    errors = {float(width): error["mean"] for width, error in learned["validation_error"].items()}
    assert learned["width"] == min(errors, key=errors.get)
