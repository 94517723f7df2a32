"""The masks that are compared, and the common unit of their strengths: the width of a mask's step.

Every relaxation has a strength in a unit of its own. The width is how far one entry has to move through the threshold
for its mask to rise from 1/4 to 3/4, while the others stay at the quantiles of a standard normal. For the mean over
Gaussian noise the width is known, if one neglects that the noise of the others moves the threshold.
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
from ops import baselines

SAMPLES = 100
"""The number of noisy masks in the mean of the perturbed one."""
_POSITIONS = 161
_STEPS = 16  # steps of the bisection in the logarithm of the strength

_QUARTILE = statistics.NormalDist().inv_cdf(0.75)

Mask = Callable[[Array, int, Array], Array]  # (x [..., n], k, strength) -> mask [..., n]


@dataclasses.dataclass(frozen=True)
class Relaxation:
    """A relaxed mask.

    Attributes:
      mask: takes rows, k and a strength.
      is_random: whether the mask is a mean over noise.
      all_pairs: whether it takes k n operations, too many for a long row.
    """

    mask: Mask
    is_random: bool = False
    all_pairs: bool = False


def perturbed(samples: int, key: Array | None = None) -> Mask:
    """Returns the mean of ``samples`` noisy masks, with the noise of ``key``, or always with the same noise."""

    def mask(x: Array, k: int, strength: Array) -> Array:
        noise = jax.random.key(0) if key is None else key
        return baselines.perturbed_topk_mask(x, k, lam=strength, num_samples=samples, key=noise)

    return mask


def _by_lam(operator: Callable[..., Array], all_pairs: bool = False, **options: float) -> Relaxation:
    return Relaxation(lambda x, k, strength: operator(x, k, lam=strength, **options), all_pairs=all_pairs)


RELAXATIONS: dict[str, Relaxation] = {
    "relaxed, p = 2": _by_lam(ops.topk_mask, p=2.0),
    "relaxed, p = 3/2": _by_lam(ops.topk_mask, p=1.5),
    "relaxed, p = 4/3": _by_lam(ops.topk_mask, p=4 / 3),
    "sigmoid": _by_lam(baselines.sigmoid_topk_mask),
    "LapSum": _by_lam(baselines.lapsum_topk_mask),
    "DFTopK": _by_lam(baselines.dftopk_mask),
    "entropic transport": _by_lam(baselines.entropic_ot_topk_mask),
    "SoftSort": _by_lam(baselines.softsort_topk_mask),
    "NeuralSort": _by_lam(baselines.neuralsort_topk_mask, all_pairs=True),
    f"perturbed, {SAMPLES} samples": Relaxation(perturbed(SAMPLES), is_random=True),
}


def noise_of(width: float) -> float:
    """Returns the standard deviation of the noise with which the mean of a hard mask has a width."""
    return width / (2 * _QUARTILE)


@functools.cache
def strength_of(name: str, n: int, k: int, width: float) -> float:
    """Finds by bisection the strength at which a relaxation of the top ``k`` of ``n`` has a width.

    Raises:
      ValueError: no strength from 1e-5 to 1e5 has that width.
    """
    if RELAXATIONS[name].is_random:
        return noise_of(width)
    others = [statistics.NormalDist().inv_cdf((i + 0.5) / (n - 1)) for i in range(n - 1)]
    positions = others[n - 1 - k] + width * np.linspace(-8.0, 8.0, _POSITIONS)
    rows = jnp.asarray(np.column_stack([positions, np.tile(others, (_POSITIONS, 1))]), jnp.float32)
    moving = jax.jit(lambda rows, strength: RELAXATIONS[name].mask(rows, k, strength)[:, 0])
    low, high = math.log(1e-5), math.log(1e5)
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        mask = np.maximum.accumulate(np.asarray(moving(rows, jnp.float32(math.exp(middle)))))
        is_narrow = mask[-1] > 0.75 and np.interp(0.75, mask, positions) - np.interp(0.25, mask, positions) < width
        low, high = (middle, high) if is_narrow else (low, middle)
    strength = math.exp(0.5 * (low + high))
    if not 2e-5 < strength < 5e4:
        raise ValueError(f"{name}: no strength has a width of {width:g} at n = {n}, k = {k}")
    return strength
