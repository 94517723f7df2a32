"""Sums of two floats, bisection over the order of the floats, and the exponent of the dual norm."""

from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.scalar.arithmetic import TwoFloat, dual_exponent, middle, power_of_two, shift

FLOATS = st.floats(-(2.0**60), 2.0**60, width=32, allow_subnormal=False).filter(lambda v: v == 0 or abs(v) > 1e-20)


def exactly(a):
    return Fraction(float(a.hi)) + Fraction(float(a.lo))


@given(FLOATS, FLOATS)
def test_shift_is_exact(a, b):
    moved = shift(TwoFloat(jnp.float32(a), jnp.float32(0)), jnp.float32(b))
    assert exactly(moved) == Fraction(a) + Fraction(b)
    assert abs(float(moved.lo)) <= np.spacing(np.float32(abs(float(moved.hi)))) / 2


@pytest.mark.parametrize(("low", "high"), [(-3e38, 3e38), (-1e-30, 1e-30), (1.0, 2.0), (-5.0, -4.0), (0.0, 3e38)])
def test_bisection_finds_any_float_in_32_steps(low, high):
    target = np.float32(0.3 * low + 0.7 * high)
    left, right = jnp.float32(low), jnp.float32(high)
    for _ in range(32):
        point = middle(left, right)
        left, right = (point, right) if point < target else (left, point)
    assert right == target or left == target


def test_there_is_nothing_between_neighbours():
    one = jnp.float32(1)
    assert middle(one, jnp.nextafter(one, jnp.float32(2))) in (one, jnp.nextafter(one, jnp.float32(2)))


@pytest.mark.parametrize("x", [1.0, 1.999, 2.0, 0.3, 1e-30, 7e29])
def test_power_of_two(x):
    found = float(power_of_two(jnp.float32(x)))
    assert np.frexp(found)[0] == 0.5
    assert found <= np.float32(x) < 2 * found


@pytest.mark.parametrize("exponent", [1, 2, 3, 4, 5, 10, 50, 1000])
def test_whole_numbers_are_found_in_spite_of_rounding(exponent):
    for p in (1 + 1 / exponent, (exponent + 1) / exponent):
        assert dual_exponent(p) == exponent
        assert isinstance(dual_exponent(p), int)


@pytest.mark.parametrize("p", [4 / 3 + 1e-10, 1.5 - 1e-12, 1.1 + 1e-13])
def test_what_is_no_rounding_is_left(p):
    assert dual_exponent(p) == 1 / (p - 1) != round(dual_exponent(p))
