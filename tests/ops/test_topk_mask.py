"""The relaxed mask at length, and where it is exactly the hard one."""

import numpy as np
import pytest

from ops import topk_mask
from tests.ops import oracles


def test_towards_p_1_the_mask_is_the_hard_one_and_above_2_slopes_have_no_bound(x64):
    x = 0.1 * np.random.default_rng(0).permutation(40)
    hard = oracles.hard(x, 7)
    assert np.abs(topk_mask(x, 7, p=1.1, lam=0.5) - hard).max() > 0.01
    assert np.abs(topk_mask(x, 7, p=1.005, lam=0.5) - hard).max() < 1e-9
    for p, why in ((1.0, "hard operator; use lam=0"), (2.25, "above 2 derivatives are unbounded")):
        with pytest.raises(ValueError, match=rf"^p must be in \(1, 2\], got {p}: .*{why}$"):
            topk_mask(x, 7, p=p)


def test_is_exactly_hard_where_nothing_is_partly_selected_and_exactly_sparse_elsewhere():
    p = 1.2
    x = oracles.samples((4000, 5), seed=8, dtype=np.float32)
    ordered = -np.sort(-x, axis=1).astype(np.float64)
    for lam in (1e-3, 0.1, 0.5):
        wide = ordered[:, 1] - ordered[:, 2] > lam * (1 + 1e-5)
        assert wide.sum() > 500
        mask = np.asarray(topk_mask(x, 2, lam=np.float32(lam), p=p))
        np.testing.assert_array_equal(mask[wide], np.stack([oracles.hard(row, 2) for row in x[wide]]))
        assert np.all(np.count_nonzero(mask[~wide], axis=1) > 2)
        assert np.any(mask[~wide] == 0)
