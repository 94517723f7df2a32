"""Means and intervals over the seeds; whole summaries are in test_run.py and test_train.py."""

import numpy as np
import pytest
from scipy import stats

from experiments.core.record.summary import interval


def test_interval_matches_scipy_t_interval():
    values = [5.0, 6.0, 8.5, 4.0]
    result = interval([None, *values])
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert result["mean"] == pytest.approx(5.875)
    assert result["interval95"] == pytest.approx((high - low) / 2)
    assert interval([1.0])["interval95"] is None
    assert interval([None])["mean"] is None
