"""Top-k accuracy against a sort."""

import numpy as np

from ops import topk_accuracy
from tests.ops import oracles

LOGITS = np.round(2 * oracles.samples((200, 7), dtype=np.float32)) / 2  # with ties
LABELS = np.arange(200) % 7


def test_agrees_with_a_stable_sort():
    for where in (None, np.arange(7) != 2):
        order = np.argsort(-LOGITS if where is None else np.where(where, -LOGITS, np.inf), axis=-1, kind="stable")
        expected = np.stack([(order[:, :k] == LABELS[:, None]).any(-1) for k in range(1, 7)], -1)
        assert 0 < expected[:, 0].mean() < 1
        hits = np.asarray(topk_accuracy(LOGITS, LABELS, range(1, 7), where=where))
        np.testing.assert_array_equal(hits, expected)
    assert not hits[LABELS == 2].any()
    # The mean for one k is of that k alone.
    np.testing.assert_array_equal(topk_accuracy(LOGITS, LABELS, 3, where=where), hits[:, 2])


def test_of_several_labels_one_suffices():
    several = np.random.default_rng(0).random(LOGITS.shape) < 0.3
    several[:5] = False
    ranked = np.take_along_axis(several, np.argsort(-LOGITS, axis=-1, kind="stable"), axis=-1)
    expected = np.maximum.accumulate(ranked, axis=-1)
    assert not expected[:5].any()
    np.testing.assert_array_equal(topk_accuracy(LOGITS, several.astype(np.uint8), range(1, 8)), expected)
    np.testing.assert_array_equal(topk_accuracy(LOGITS.T, several.T, [3, 1], axis=0), expected[:, [2, 0]])


def test_nan_and_foreign_labels_never_hit():
    x = np.float32([[np.nan, 1, 2], [1, np.nan, 2], [-np.inf, 0, 1], [3, 2, 1], [3, 2, 1]])
    hits = topk_accuracy(x, np.array([0, 2, 0, -1, 3]), (1, 2, 3))
    np.testing.assert_array_equal(hits, [[0, 0, 0], [1, 1, 1], [0, 0, 1], [0, 0, 0], [0, 0, 0]])
    hits = topk_accuracy(x[:2], np.array([[1, 1, 0], [1, 1, 0]]), (1, 2, 3))
    np.testing.assert_array_equal(hits, [[0, 1, 1], [0, 1, 1]])


def test_small_label_dtypes_do_not_wrap():
    x = np.arange(300, dtype=np.float32)[None]
    assert not topk_accuracy(x, np.uint8([40]), 20).any()  # 296 is the fourth
