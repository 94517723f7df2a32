"""The hard operators: a stable sort."""

import numpy as np

from scripts.fuzz.oracle.reals import Flags, Reals


def chosen(s: Reals, k: Reals) -> Reals:
    """How much of each entry is selected: the ``k`` largest, the first among ties; ``-inf`` never.

    Args:
      s: shape ``(rows, n)``.
      k: shape ``(rows, 1)``; of a ``k`` that is not whole, the next entry gets what is left.
    """
    order = np.argsort(-s, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(s.shape[1]), s.shape), axis=1)
    return np.where(s > -np.inf, np.clip(k - rank, 0, 1), 0.0)


def tied(s: Reals, z: Reals) -> Flags:
    """Rows in which entries are equal of which one is selected more than the other, shape ``(rows, 1)``."""
    with np.errstate(invalid="ignore"):
        least = np.where(z > 0, s, np.inf).min(axis=1, keepdims=True)
        return (least == np.where(z < 1, s, -np.inf).max(axis=1, keepdims=True)) & np.isfinite(least)
