"""The baselines that select, once more in NumPy float64 by the formulas of their papers, all pairs at once."""

import numpy as np
from scipy import optimize, special, stats


def by_threshold(cumulative, x, k, temperature):
    """``F((x - tau) / temperature)`` with ``tau`` by Brent's method."""

    def excess(tau):
        return np.sum(cumulative((x - tau) / temperature)) - k

    low, high = x.min() - 60 * temperature, x.max() + 60 * temperature
    tau = optimize.brentq(excess, low, high, xtol=1e-15, rtol=4 * np.finfo(float).eps)
    return cumulative((x - tau) / temperature)


def sigmoid(x, k, temperature):
    """The logistic distribution function."""
    return by_threshold(special.expit, x, k, temperature)


def lapsum(x, k, temperature):
    """The Laplace distribution function."""
    return by_threshold(stats.laplace.cdf, x, k, temperature)


def entropic_ot(x, k, epsilon):
    """The squashed entries through the logistic function: Sinkhorn's fixed point."""
    u = special.expit((x - x.mean()) / x.std())
    return by_threshold(special.expit, 2 * u, k, epsilon)


def softsort(x, k, temperature):
    """Rows of the matrix of SoftSort."""
    s = np.sort(x)[::-1]
    return special.softmax(-np.abs(s[:, None] - x[None, :]) / temperature, axis=1)[:k].sum(0)


def neuralsort(x, k, temperature):
    """Rows of the matrix of NeuralSort."""
    n = x.size
    slopes = n + 1 - 2 * np.arange(1, n + 1)
    distances = np.abs(x[:, None] - x[None, :]).sum(1)
    return special.softmax((slopes[:, None] * x[None, :] - distances[None, :]) / temperature, axis=1)[:k].sum(0)
