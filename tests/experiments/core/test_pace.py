"""Rates, and times left."""

import pytest

from experiments.core.pace import clock, pace


@pytest.mark.parametrize(
    ("done", "total", "seconds", "said"),
    [(10, 30, 4.0, "2.5 a second, 0:08 left"), (1, 1000, 7.5, "7.5 s each, 2:04:52 left")],
)
def test_rate_and_time_left(done, total, seconds, said):
    assert pace(done, total, seconds) == said


def test_a_minute_is_not_sixty_seconds():
    assert [clock(seconds) for seconds in (0, 59.7, 3599.6, 3661)] == ["0:00", "1:00", "1:00:00", "1:01:01"]
