"""The rules by which a comparison becomes an answer."""

import pytest

from experiments.core.record.summary import interval
from experiments.core.report.finding import of_level, of_sign, sign

NARROW, WIDE = [1.4, 1.5, 1.6], [0.0, 1.5, 3.0]  # intervals 1.5 +- 0.25 and 1.5 +- 3.7


@pytest.mark.parametrize(
    ("values", "expected"),
    [(NARROW, "holds"), (WIDE, "not shown"), ([-value for value in NARROW], "does not hold"), ([1.5], "not shown")],
)
def test_a_whole_interval_is_on_a_side(values, expected):
    assert of_sign(sign(interval(values))) == expected


@pytest.mark.parametrize(
    ("values", "margin", "expected"),
    [
        (NARROW, 2.0, "holds"),
        ([-value for value in NARROW], 2.0, "holds"),
        (NARROW, 1.5, "not shown"),
        (NARROW, 1.0, "does not hold"),
        (WIDE, 2.0, "not shown"),
        ([None] * 3, 2.0, "not shown"),
    ],
)
def test_level_holds_within_a_margin(values, margin, expected):
    assert of_level(interval(values), margin) == expected
