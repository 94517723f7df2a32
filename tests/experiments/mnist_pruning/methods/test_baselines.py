"""What defines each of the baselines: which weights die, which grow, and when."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.mnist_pruning.methods import METHODS, rigl
from experiments.mnist_pruning.methods.schedules import num_kept
from tests.experiments.support import small_config

N, STEPS, KEY = 20, 100, jax.random.key(0)
W = jnp.asarray(np.random.default_rng(0).permutation(np.linspace(-0.97, 0.93, N)), jnp.float32)


def method_of(name, **fields):
    """The method with its functions compiled: a program of each is sooner made than one of every primitive."""
    method = METHODS[name].make(small_config(name, **{"density_schedule__every": 10, **fields}), STEPS)
    functions = ("weights", "init", "after_update")
    return dataclasses.replace(method, **{function: jax.jit(getattr(method, function)) for function in functions})


def at(step):
    return jnp.float32(step / STEPS)


def gradient(method, w, state, pull, progress=0.0):
    """That in weights and state of a loss whose gradient in the pruned weights is `pull`."""
    loss = lambda w, state: jnp.vdot(method.weights(w, state, jnp.float32(progress), KEY), pull)  # noqa: E731
    return jax.jit(jax.grad(loss, argnums=(0, 1)))(w, state)


def largest(values, k):
    return np.argsort(-np.abs(np.asarray(values)), kind="stable")[:k].tolist()


def indices(mask):
    return np.flatnonzero(np.asarray(mask)).tolist()


def test_gradual_follows_the_cubic_schedule():
    method = method_of("gradual", density=0.1, density_schedule__begin=0.2, density_schedule__end=0.75)
    state, kept = method.init(W, KEY), {}
    for step in range(1, STEPS + 1):
        w, state = method.after_update(W, state, W, at(step))
        np.testing.assert_array_equal(w, W)  # they keep their value
        kept[step] = int(state["mask"].sum())
        assert indices(state["mask"]) == sorted(largest(W, kept[step]))
    by_formula = {step: int(N * (0.1 + 0.9 * (1 - (step - 20) / 55) ** 3) + 1e-5) for step in range(20, 75, 10)}
    assert {step: kept[step] for step in by_formula} == by_formula
    assert all(kept[step] == kept[step - 1] for step in kept if step > 1 and step % 10 and step != 75)
    assert (kept[19], kept[74], kept[75], kept[100]) == (20, by_formula[70], 2, 2)
    pull, _ = gradient(method, W, state, jnp.ones(N))
    assert indices(pull) == sorted(largest(W, 2))


def test_gradual_may_revive_masked_weights():
    method = method_of("gradual", density=0.5, density_schedule__begin=0.0, density_schedule__end=0.5)
    _, state = method.after_update(W, method.init(W, KEY), W, at(10))
    smallest = int(np.argmin(np.abs(W)))
    assert not state["mask"][smallest]
    _, state = method.after_update(W * jnp.where(jnp.arange(N) == smallest, 1.0, 0.01), state, W, at(20))
    assert state["mask"][smallest]


def test_st3_soft_thresholds_and_rescales():
    method = method_of("st3", density=0.25, density_schedule__begin=0.0, density_schedule__end=0.5)
    magnitudes = np.abs(np.asarray(W))
    threshold = np.sort(magnitudes)[-6]
    share = np.sort(magnitudes)[-5:].sum() / magnitudes.sum()
    expected = np.sign(W) * np.maximum(magnitudes - threshold, 0) * 1.01 / (share + 0.01)
    np.testing.assert_allclose(method.weights(W, {}, jnp.float32(1), None), expected, rtol=1e-5)
    np.testing.assert_allclose(method.weights(W, {}, jnp.float32(0), None), W, rtol=1e-6)  # dense at first
    pull, _ = gradient(method, W, {}, jnp.arange(N, dtype=jnp.float32), progress=1.0)
    np.testing.assert_allclose(pull, np.arange(N))


def test_movement_keeps_weights_leaving_zero():
    method = method_of("movement", density=0.25, density_schedule__begin=0.0, density_schedule__end=0.5)
    pull = jnp.asarray(np.random.default_rng(1).normal(size=N), jnp.float32)
    start = method.init(W, KEY)
    of_weights, of_state = gradient(method, W, start, pull)
    np.testing.assert_allclose(of_weights, pull)  # dense at first
    np.testing.assert_allclose(of_state["scores"], pull * W, rtol=1e-6)
    updates, _ = method.optimizers["scores"].update(
        of_state["scores"], method.optimizers["scores"].init(start["scores"])
    )
    state = {"scores": start["scores"] + updates}
    fastest = np.argsort(np.asarray(pull * W))[:5].tolist()  # a descent by `pull` takes them away from 0
    assert indices(method.weights(W, state, jnp.float32(1), None)) == sorted(fastest)
    of_weights, of_state = gradient(method, W, state, pull, progress=1.0)
    assert indices(of_weights) == sorted(fastest)
    np.testing.assert_allclose(of_state["scores"], pull * W, rtol=1e-6)  # masked ones go on being scored


def test_rigl_drops_smallest_grows_steepest():
    method = method_of("rigl", density=0.5, rigl__drop=0.35)
    assert int(10 * rigl.drop_fraction(jnp.float32(0.1), 0.35, 0.75)) == 3
    mask = np.arange(N, dtype=np.float32) % 2 == 0
    pull = jnp.asarray(np.random.default_rng(1).normal(size=N), jnp.float32)
    w, state = method.after_update(np.where(mask, W, 0), {"mask": mask.astype(np.float32)}, pull, at(10))
    active, grown = indices(mask), state["mask"]
    left = sorted(active, key=lambda i: -abs(float(W[i])))[:7]
    others = [i for i in range(N) if i not in left]  # one that is dropped may grow again
    new = sorted(others, key=lambda i: -abs(float(pull[i])))[:3]
    assert indices(grown) == sorted(left + new)
    for i in range(N):
        assert float(w[i]) == (float(W[i]) if i in left or (i in new and i in active) else 0.0)


def test_rigl_rewires_less_until_it_stops():
    assert float(rigl.drop_fraction(jnp.float32(0), 0.3, 0.75)) == pytest.approx(0.3)
    assert float(rigl.drop_fraction(jnp.float32(0.375), 0.3, 0.75)) == pytest.approx(0.15)
    method = method_of("rigl", density=0.5)
    state = method.init(W, KEY)
    assert int(state["mask"].sum()) == num_kept(0.5, N)
    assert indices(state["mask"]) != indices(method.init(W, jax.random.key(1))["mask"])
    pull = jnp.linspace(1.0, 2.0, N)
    dense, _ = gradient(method, W, state, pull)
    np.testing.assert_allclose(dense, pull)
    changed, w = [], W
    for step in range(1, STEPS + 1):
        before = state["mask"]
        w, state = method.after_update(w + 0.5, state, pull, at(step))
        assert int(state["mask"].sum()) == 10
        assert indices(w) == indices(w * state["mask"])
        changed += [step] if (before != state["mask"]).any() else []
    assert changed
    assert all(step % 10 == 0 and step < 75 for step in changed)


def test_topkast_learns_in_its_backward_set():
    """Penalises weights in the backward set alone 1 / density times as much, as in the paper."""
    method = method_of("topkast", density=0.1, topkast__backward_density=0.4, topkast__penalty=0.5)
    a, b = largest(W, 2), largest(W, 8)
    assert indices(method.weights(W, {}, jnp.float32(0), None)) == sorted(a)
    pull, _ = gradient(method, W, {}, jnp.ones(N))
    assert indices(pull) == sorted(b)
    by_penalty = jax.jit(jax.grad(method.penalty))(W, {}, jnp.float32(0))
    expected = [0.5 * float(W[i]) * (1 if i in a else 10 if i in b else 0) for i in range(N)]
    np.testing.assert_allclose(by_penalty, expected, rtol=1e-6)


def test_str_threshold_learns_and_decays():
    method = method_of("str", str__initial=-1.0, str__weight_decay=0.2)
    state = method.init(W, KEY)
    threshold = float(jax.nn.sigmoid(-1.0))
    expected = np.sign(W) * np.maximum(np.abs(W) - threshold, 0)
    np.testing.assert_allclose(method.weights(W, state, jnp.float32(0), None), expected, rtol=1e-6)
    of_weights, of_state = gradient(method, W, state, jnp.ones(N))
    alive = np.abs(np.asarray(W)) > threshold
    np.testing.assert_allclose(of_weights, alive.astype(float))
    slope = threshold * (1 - threshold)
    np.testing.assert_allclose(of_state["s"], -slope * np.sign(np.asarray(W))[alive].sum(), rtol=1e-5)
    decay = jax.jit(jax.grad(method.penalty, argnums=(0, 1)))(W, state, jnp.float32(0))
    np.testing.assert_allclose(decay[0], 0.2 * W, rtol=1e-6)
    np.testing.assert_allclose(decay[1]["s"], -0.2, rtol=1e-6)


@pytest.mark.parametrize("schedule", ["constant", "cubic"])
def test_hard_forward_identity_backward(schedule):
    method = method_of("identity_straight_through", density=0.1, density_schedule__name=schedule)
    kept = {progress: indices(method.weights(W, {}, jnp.float32(progress), None)) for progress in (0.0, 0.35, 0.7)}
    halfway = 2 if schedule == "constant" else int(N * (0.1 + 0.9 / 8))
    assert {at: len(found) for at, found in kept.items()} == {0.0: 2 if halfway == 2 else N, 0.35: halfway, 0.7: 2}
    assert kept[0.35] == sorted(largest(W, halfway))
    np.testing.assert_allclose(gradient(method, W, {}, jnp.arange(N, dtype=jnp.float32))[0], np.arange(N))


def test_num_kept_forgives_rounding_errors():
    assert [num_kept(0.29, 100), int(0.29 * 100)] == [29, 28]
