"""The conditions that make a point the solution of an isotonic problem, checked in NumPy float64 without any solver."""

import numpy as np


def violation(v, s, w, lam, p, slope, c=1.0):
    """How badly a row violates the optimality conditions: 0 for the solution, and only for it; ``slope`` is ``phi'``.
    ``c`` multiplies ``h_i``.

    With multipliers ``alpha_i = sum_{j <= i} h_j'(v_j)`` these are: ``v`` decreasing, ``alpha >= 0``, its last value 0,
    and ``alpha_i > 0`` only where ``v_i = v_{i+1}``. Relative to the sizes of the terms.
    """
    gap = s - v
    pull = np.sign(gap) * (np.abs(gap) / lam) ** (1.0 / (p - 1.0))
    terms = c * (w * slope(v) - pull)
    alpha = np.cumsum(terms)
    scale = 1.0 + np.abs(c * pull).sum()
    drops = v[:-1] - v[1:]
    return max(
        np.max(-drops, initial=0.0) / (1.0 + np.abs(v).max()),
        np.max(-alpha, initial=0.0) / scale,
        abs(alpha[-1]) / scale,
        np.max(np.abs(alpha[:-1]) * (drops > 0), initial=0.0) / scale,
    )


def adversarial(n, seed=0):
    """Rows of entries, shape ``(8, n)``: what solvers find easy, and what they do not."""
    rng = np.random.default_rng(seed)
    noise = np.sort(rng.normal(size=n))[::-1]
    return np.stack(
        [
            noise,
            rng.normal(size=n),
            noise[::-1],  # one block
            np.linspace(3.0, -3.0, n),
            np.round(noise, 1),  # ties
            np.full(n, 0.7),
            np.repeat(rng.normal(size=-(-n // 2)), 2)[:n],  # many small blocks
            noise**3 * 10,
        ]
    )
