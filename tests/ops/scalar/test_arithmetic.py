"""Sums of two floats, powers of two, and the exponent of the dual norm."""

from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.scalar.arithmetic import TwoFloat, dual_exponent, power_of_two, shift

FLOATS = st.floats(-(2.0**60), 2.0**60, width=32, allow_subnormal=False).filter(lambda v: v == 0 or abs(v) > 1e-20)


@given(FLOATS, FLOATS)
def test_shift_is_exact(a, b):
    moved = shift(TwoFloat(jnp.float32(a), jnp.float32(0)), jnp.float32(b))
    assert Fraction(float(moved.hi)) + Fraction(float(moved.lo)) == Fraction(a) + Fraction(b)
    assert abs(float(moved.lo)) <= np.spacing(np.float32(abs(float(moved.hi)))) / 2


def test_power_of_two():
    x = np.float32([1.0, 1.999, 2.0, 0.3, 1e-30, 7e29])
    found = np.asarray(power_of_two(jnp.asarray(x)))
    assert (np.frexp(found)[0] == 0.5).all()
    assert ((found <= x) & (x < 2 * found)).all()


@pytest.mark.parametrize("exponent", [1, 3, 10, 1000])
def test_whole_numbers_are_found_in_spite_of_rounding(exponent):
    for p in (1 + 1 / exponent, (exponent + 1) / exponent):
        assert dual_exponent(p) == exponent
        assert isinstance(dual_exponent(p), int)
    for p in (4 / 3 + 1e-10, 1.5 - 1e-12, 1.1 + 1e-13):  # no roundings
        assert dual_exponent(p) == 1 / (p - 1) != round(dual_exponent(p))
