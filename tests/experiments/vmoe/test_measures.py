"""The metrics of a router against NumPy, group by group."""

import dataclasses

import jax
import numpy as np
import pytest

from experiments.vmoe.measures import assigned, measure, mutual_information, stability
from experiments.vmoe.routers import Logits, RelaxedExpertChoice, TokenChoice

RNG = np.random.default_rng(0)
G, S, E = 2, 12, 5
LOGITS = (2 * RNG.normal(size=(G, S, E))).astype(np.float32)
ROUTERS = {
    "relaxed with room": RelaxedExpertChoice(3, S, lam=2.0),
    "relaxed without": RelaxedExpertChoice(3, 4, lam=2.0),
    "token choice": TokenChoice(2, 4),
}


@jax.jit
def routed_and_measured(logits):
    routed = {name: router(Logits(logits, logits)) for name, router in ROUTERS.items()}
    return routed, {name: measure(of_one) for name, of_one in routed.items()}


@pytest.fixture(scope="module")
def results():
    return jax.tree.map(np.asarray, routed_and_measured(LOGITS))


def measured_by_numpy(routed, group):
    experts = [set() for _ in range(S)]
    kept, selected, weights, gates = 0.0, 0, 0.0, []
    of_expert = [(routed.combine[group, :, expert] > 0).sum() for expert in range(E)]
    for expert in range(E):
        for token, weight in zip(routed.token[group, expert], routed.weight[group, expert], strict=True):
            if weight > 0:
                experts[token].add(expert)
                kept += weight
                gates.append(routed.gates[group, token, expert])
        for weight in routed.combine[group, :, expert]:
            selected += weight > 0
            weights += weight
    counts = [len(of_token) for of_token in experts]
    return {
        "experts_per_token_mean": sum(counts) / S,
        "experts_per_token_min": min(counts),
        "experts_per_token_max": max(counts),
        **{f"served_by_{t}": 100 * sum(count >= t for count in counts) / S for t in (1, 2, 4)},
        "support": selected / E,
        "load_variation": np.std(of_expert) / np.mean(of_expert),
        "dropped_mass": 100 * (1 - kept / weights),
        "smallest_gate": min(gates),
        "entropy": np.mean([-sum(gate * np.log(gate) for gate in of_token) for of_token in routed.gates[group]]),
    }


@pytest.mark.parametrize("name", ROUTERS)
def test_they_are_those_of_numpy(name, results):
    routed, found = results[0][name], results[1][name]
    assert {(leaf.shape, leaf.dtype.name) for leaf in found.values()} == {((G,), "float32")}
    for group in range(G):
        expected = measured_by_numpy(routed, group)
        assert found.keys() == expected.keys()
        for metric, value in expected.items():
            # Of shares in percent float32 leaves an error of about 1e-5.
            np.testing.assert_allclose(found[metric][group], value, rtol=1e-5, atol=3e-5, err_msg=metric)


def test_empty_selection_drops_nothing(results):
    nothing = jax.tree.map(np.zeros_like, results[0]["relaxed with room"])
    found = jax.jit(measure)(dataclasses.replace(nothing, gates=np.full((G, S, E), 1 / E, np.float32)))
    np.testing.assert_array_equal(found["dropped_mass"], 0)
    np.testing.assert_array_equal(found["experts_per_token_max"], 0)
    np.testing.assert_array_equal(found["load_variation"], 0)
    np.testing.assert_allclose(found["entropy"], np.log(E), rtol=1e-6)


def test_assigned_experts_hold_the_token(results):
    found_of = {name: np.asarray(jax.jit(assigned)(routed)) for name, routed in results[0].items()}
    for name, routed in results[0].items():
        found = found_of[name]
        assert found.shape == (G, S, E)
        wanted = np.zeros((G, S, E), bool)
        for group, expert, slot in np.argwhere(routed.weight > 0):
            wanted[group, routed.token[group, expert, slot], expert] = True
        np.testing.assert_array_equal(found, wanted)
    assert (found_of["relaxed without"].sum(axis=1) <= 4).all()


def test_specialisation_by_hand():
    by_hand = [
        ([[5.0, 0.0, 0.0], [0.0, 5.0, 0.0]], np.log(2)),  # each expert has a class
        ([[1.0, 3.0, 0.0], [2.0, 6.0, 0.0]], 0.0),  # a quarter of both is of the first class
        ([[2.0, 0.0, 0.0], [0.0, 1.0, 1.0]], np.log(2)),
        # Of ln 2 and 2 ln 2 - 3/4 ln 3, less 3/2 ln 2.
        ([[1.0, 1.0, 0.0], [2.0, 0.0, 0.0]], 1.5 * np.log(2) - 0.75 * np.log(3)),
        ([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]], 0.0),
    ]
    joint, nats = (np.array(column, np.float32) for column in zip(*by_hand, strict=True))
    np.testing.assert_allclose(jax.jit(jax.vmap(mutual_information))(joint), nats, atol=1e-6)


def test_stability_by_hand():
    before = np.array([[[1, 0], [0, 1]], [[1, 0], [0, 1]], [[1, 1], [0, 0]], [[0, 0], [0, 0]]], bool)
    now = np.array([[[1, 0], [0, 1]], [[0, 1], [1, 0]], [[1, 0], [0, 1]], [[0, 0], [0, 0]]], bool)
    # The third: one pair of three.
    np.testing.assert_allclose(jax.jit(jax.vmap(stability))(before, now), [100, 0, 100 / 3, 100], rtol=1e-6)
