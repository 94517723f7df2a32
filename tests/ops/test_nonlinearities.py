"""A nonlinearity is what its functions are: its name only asks for it."""

import dataclasses
import functools

import numpy as np
import pytest

from ops import Nonlinearity, nonlinearities, register_nonlinearity, relaxed_topk, topk_conjugate
from ops.nonlinearities import ABS, HALF_SQUARE
from tests.ops import oracles

X = oracles.samples((2, 4), 3, np.float32)


def test_a_name_borrowed_from_another_changes_nothing():
    borrowed = dataclasses.replace(HALF_SQUARE, name="abs")
    y = oracles.by_rows(functools.partial(oracles.pooled, kind="mag"), X, 2, 0.5)
    np.testing.assert_allclose(relaxed_topk(X, 2, phi=borrowed, lam=0.5), y, rtol=1e-5, atol=1e-6)


CUBE = Nonlinearity(
    "cube of the magnitude",
    value=lambda x: x**3 / 3,
    slope=lambda x: x**2,
    curvature=lambda x: 2 * x,
    conjugate=lambda y: 2 / 3 * y**1.5,
    even=True,
)


def test_a_registered_one_is_known_by_its_name_wherever_a_phi_is(monkeypatch):
    monkeypatch.setattr(nonlinearities, "_REGISTERED", dict(nonlinearities._REGISTERED))
    with pytest.raises(ValueError, match=r"^phi must be a Nonlinearity or one of .*, got 'cube of the magnitude'$"):
        relaxed_topk(X, 2, phi=CUBE.name)
    register_nonlinearity(CUBE)
    register_nonlinearity(CUBE)  # again does no harm
    np.testing.assert_array_equal(topk_conjugate(X, 2, phi=CUBE.name), topk_conjugate(X, 2, phi=CUBE))
    hard = relaxed_topk(X, 2, phi=CUBE.name, lam=0)
    expected = np.stack([oracles.hard(np.abs(row), 2) for row in X]) * np.sign(X) * X**2
    np.testing.assert_allclose(hard, expected, rtol=1e-6)


def test_a_name_that_is_taken_is_refused_and_stays_what_it_was():
    with pytest.raises(ValueError, match=r"^phi must have a name of its own, got 'abs', which is taken$"):
        register_nonlinearity(dataclasses.replace(CUBE, name="abs"))
    np.testing.assert_array_equal(topk_conjugate(X, 2, phi="abs"), topk_conjugate(X, 2, phi=ABS))
    with pytest.raises(ValueError, match=r"^phi must be a Nonlinearity, got 'abs'$"):
        register_nonlinearity("abs")
