"""The masks that are compared, and the common unit of their strengths: the width of a mask's step.

Every relaxation has a strength in a unit of its own. The width is how far one entry has to move through the threshold
for its mask to rise from 1/4 to 3/4, while the others stay at the quantiles of a standard normal. For the mean over
noise the width is known, if one neglects that the noise of the others moves the threshold.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import ops
from experiments.mnist_pruning.methods.imle import imle_topk_mask
from ops import baselines
from scripts.relaxations.networks import network_topk_mask

SAMPLES = 100
"""The number of noisy masks in the mean of a random one."""
_POSITIONS = 161
_STEPS = 16  # steps of the bisection in the logarithm of the strength

_QUARTILE = statistics.NormalDist().inv_cdf(0.75)

Mask = Callable[[Array, int, Array], Array]  # (x [..., n], k, strength) -> mask [..., n]


@dataclasses.dataclass(frozen=True)
class Relaxation:
    """A relaxed mask.

    Attributes:
      mask: takes rows, k and a strength; a random one always has the same noise.
      drawn: returns the mean of a number of masks with the noise of a key, if the mask is random.
      longest: the most entries of a row that is timed.
    """

    mask: Mask
    drawn: Callable[[int, Array], Mask] | None = None
    longest: float = math.inf


def _by_lam(operator: Callable[..., Array], longest: float = math.inf, **options: float) -> Relaxation:
    return Relaxation(lambda x, k, strength: operator(x, k, lam=strength, **options), longest=longest)


def _random(operator: Callable[..., Array]) -> Relaxation:
    def drawn(samples: int, key: Array) -> Mask:
        return lambda x, k, strength: operator(x, k, lam=strength, num_samples=samples, key=key)

    return Relaxation(lambda x, k, strength: drawn(SAMPLES, jax.random.key(0))(x, k, strength), drawn)


RELAXATIONS: dict[str, Relaxation] = {
    "relaxed, p = 2": _by_lam(ops.topk_mask, p=2.0),
    "relaxed, p = 3/2": _by_lam(ops.topk_mask, p=1.5),
    "relaxed, p = 4/3": _by_lam(ops.topk_mask, p=4 / 3),
    "sigmoid": _by_lam(baselines.sigmoid_topk_mask),
    "LapSum": _by_lam(baselines.lapsum_topk_mask),
    "DFTopK": _by_lam(baselines.dftopk_mask),
    "entropic transport": _by_lam(baselines.entropic_ot_topk_mask),
    "SoftSort": _by_lam(baselines.softsort_topk_mask),
    "NeuralSort": _by_lam(baselines.neuralsort_topk_mask, longest=10_000),
    "sorting network": _by_lam(network_topk_mask, longest=10_000),
    f"perturbed, {SAMPLES} samples": _random(baselines.perturbed_topk_mask),
    f"I-MLE, {SAMPLES} samples": _random(imle_topk_mask),
}


@dataclasses.dataclass(frozen=True)
class Noise:
    """A distribution symmetric about 0, with which the mean of a hard mask has a width of 1 (see ``strength_of``).

    Attributes:
      draw: samples of a key, a shape and a dtype.
      cumulative: its distribution function.
    """

    draw: Callable[..., Array]
    cumulative: Callable[[Array], Array]


NOISES = {
    "gaussian": Noise(
        lambda key, shape, dtype: jax.random.normal(key, shape, dtype) * noise_of(1.0),
        lambda x: jax.scipy.stats.norm.cdf(x, scale=noise_of(1.0)),
    ),
    "uniform": Noise(
        lambda key, shape, dtype: jax.random.uniform(key, shape, dtype, minval=-1.0, maxval=1.0),
        lambda x: jnp.clip(0.5 + 0.5 * x, 0.0, 1.0),
    ),
}


def noise_of(width: float) -> float:
    """Returns the standard deviation of the Gaussian noise with which the mean of a hard mask has a width."""
    return width / (2 * _QUARTILE)


@functools.cache
def strength_of(name: str, n: int, k: int, width: float) -> float | None:
    """Finds by bisection the strength at which a relaxation of the top ``k`` of ``n`` has a width.

    Returns None if no strength from 1e-5 to 1e5 has it, as where a mask stays below 3/4 before it is as wide.
    """
    if RELAXATIONS[name].drawn:
        return noise_of(width)
    others = [statistics.NormalDist().inv_cdf((i + 0.5) / (n - 1)) for i in range(n - 1)]
    positions = others[n - 1 - k] + width * np.linspace(-8.0, 8.0, _POSITIONS)
    rows = jnp.asarray(np.column_stack([positions, np.tile(others, (_POSITIONS, 1))]), jnp.float32)
    moving = jax.jit(lambda rows, strength: RELAXATIONS[name].mask(rows, k, strength)[:, 0])

    def width_at(strength: float) -> float:
        mask = np.maximum.accumulate(np.asarray(moving(rows, jnp.float32(strength))))
        return np.interp(0.75, mask, positions) - np.interp(0.25, mask, positions) if mask[-1] > 0.75 else math.inf

    low, high = math.log(1e-5), math.log(1e5)
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if width_at(math.exp(middle)) < width else (low, middle)
    return math.exp(low) if math.isclose(width_at(math.exp(low)), width, rel_tol=0.05) else None
