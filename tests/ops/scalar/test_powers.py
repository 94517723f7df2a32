"""The exponent of the dual norm."""

import pytest

from ops.scalar.powers import dual_exponent


@pytest.mark.parametrize("exponent", [1, 2, 3, 4, 5, 10, 50, 1000])
def test_whole_numbers_are_found_in_spite_of_rounding(exponent):
    for p in (1 + 1 / exponent, (exponent + 1) / exponent):
        assert dual_exponent(p) == exponent
        assert isinstance(dual_exponent(p), int)


@pytest.mark.parametrize("p", [4 / 3 + 1e-10, 1.5 - 1e-12, 1.1 + 1e-13])
def test_what_is_no_rounding_is_left(p):
    assert dual_exponent(p) == 1 / (p - 1) != round(dual_exponent(p))
