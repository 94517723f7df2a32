"""Means and intervals over the seeds."""

import numpy as np
import pytest
from scipy import stats

from experiments.core.record.summary import interval, summarize


def test_interval_is_the_t_interval_of_the_seeds_that_have_a_value():
    values = [5.0, 6.0, 8.5, 4.0]
    result = interval([None, *values])
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert result["mean"] == pytest.approx(5.875)
    assert result["interval95"] == pytest.approx((high - low) / 2)
    assert interval([1.0])["interval95"] is None
    assert interval([None])["mean"] is None


def test_summary_counts_diverged_seeds():
    row = {"epoch": 3, "step": 30, "seconds": 1.5, "diverged": [False, True], "test_error": [5.0, None]}
    summary = summarize([4, 7], row)
    assert (summary["state"], summary["diverged"], summary["seeds"]) == ("done", 1, [4, 7])
    assert summary["final"] == {"test_error": {"per_seed": [5.0, None], "mean": 5.0, "interval95": None}}
