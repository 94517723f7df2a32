"""Fewer points of a long curve, without hiding what is far out."""

import numpy as np


def rows_kept(values: np.ndarray, limit: int) -> np.ndarray:
    """Which of `values` [T] to draw, at most `limit` (at least 4) of them, in order.

    Those are the first, the last, and of equally long stretches in between the lowest and the highest:
    every spike of the curve is drawn, in its place and at its full height.
    """
    if len(values) <= limit:
        return np.arange(len(values))
    rows, stretches = _stretches(values, limit)
    lowest = np.where(np.isnan(stretches), np.inf, stretches).argmin(axis=1)
    highest = np.where(np.isnan(stretches), -np.inf, stretches).argmax(axis=1)
    some = ~np.isnan(stretches).all(axis=1)
    found = [rows[some, column[some]] for column in (lowest, highest)]
    return np.unique(np.concatenate([[0, len(values) - 1], *found]))


def averages(values: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """The middle row of each of those stretches, and the mean there: what smoothing starts from.

    A smoothed curve of the extremes alone would lie halfway between them, not in the mean.
    """
    rows, stretches = _stretches(values, limit)
    present = ~np.isnan(stretches)
    count = present.sum(axis=1)
    means = np.where(present, stretches, 0.0).sum(axis=1) / np.maximum(count, 1)
    return (rows[:, 0] + rows.max(axis=1)) // 2, np.where(count > 0, means, np.nan)


def _stretches(values: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and values [stretches, longest] between the first row and the last; shorter ones repeat a row as NaN."""
    edges = np.linspace(1, len(values) - 1, max(1, (limit - 2) // 2) + 1).astype(int)
    offsets = np.arange(np.diff(edges).max())
    inside = offsets < np.diff(edges)[:, None]
    rows = np.where(inside, edges[:-1, None] + offsets, edges[:-1, None])
    return rows, np.where(inside, values[rows], np.nan)
