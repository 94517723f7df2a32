"""Sign tests of differences that are paired by seed."""

import pytest
from scipy import stats

from experiments.core.report import paired


@pytest.mark.parametrize("values", [[1.0, -2.0, 0.5], [0.0, None, 3.0], [-1.0] * 9 + [40.0], [0.0]])
def test_a_sign_test_counts_seeds_that_differ(values):
    above, total, p = paired.sign_test({"per_seed": values})
    assert (above, total) == (sum((v or 0) > 0 for v in values), sum(bool(v) for v in values))
    expected = stats.binomtest(above, total).pvalue if total else 1.0
    assert p == pytest.approx(expected)
