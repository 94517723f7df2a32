"""Top-k perturbed by Gaussian noise (Berthet et al., 2020).

The mask is ``E[y(x + lam Z)]``, with ``y`` the hard top-k mask and ``Z`` standard normal, estimated by a mean over
samples. Its derivative needs only values of ``y`` (their Proposition 3.1),

    d E[y(x + lam Z)] = E[(y(x + lam Z) - y(x)) (<Z, d x> + (|Z|^2 - n) d lam)] / lam.

The term ``y(x)``, which they omit, does not change the mean and removes most of the variance. The mask and its
derivative are estimated from the same noise.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from ...arithmetic import choose
from ...interface import WHOLE_UP_TO_N, Axis, check_whole
from ...scalar.mask import hard_selection
from .shared import mask_rows


def _hard(x: Array, k: Array) -> Array:
    return hard_selection((x,), k)[0]


def _mean(sample: Callable[[Array], Array], key: Array, num_samples: int, like: Array) -> Array:
    """Returns the mean of ``sample(key)`` over independent keys, one at a time; reverse mode draws samples again."""

    def add(total: Array, number: Array) -> tuple[Array, None]:
        return total + jax.checkpoint(sample, prevent_cse=False)(jax.random.fold_in(key, number)), None

    numbers = jnp.arange(num_samples, dtype=jnp.uint32)
    return lax.scan(add, jnp.zeros_like(like), numbers)[0] / num_samples


@jax.custom_jvp
def _once(x: Array) -> Array:
    """Returns ``x``, and raises for a second derivative, which would silently be 0."""
    return x


@_once.defjvp
def _once_jvp(primals, tangents):
    raise NotImplementedError("perturbed_topk_mask has first derivatives only")


@functools.partial(jax.custom_jvp, nondiff_argnums=(4,))
def _perturbed(x: Array, k: Array, lam: Array, key: Array, num_samples: int) -> Array:
    def sample(key: Array) -> Array:
        return _hard(x + lam * jax.random.normal(key, x.shape, x.dtype), k)

    return _mean(sample, key, num_samples, x)


@_perturbed.defjvp
def _perturbed_jvp(num_samples, primals, tangents):
    x, k, lam, key = primals
    x_dot, _, lam_dot, _ = tangents
    mask = _perturbed(x, k, lam, key, num_samples)
    x, lam = _once(x), _once(lam)
    unperturbed = _hard(x, k)
    finite = jnp.isfinite(x)  # noise does not change infinite entries, and would only add variance
    n = jnp.sum(finite, axis=-1, keepdims=True, dtype=x.dtype)

    def sample(key: Array) -> Array:
        noise = choose(finite, jax.random.normal(key, x.shape, x.dtype), 0.0)
        changed = _hard(x + lam * noise, k) - unperturbed
        along_x = jnp.sum(noise * x_dot, axis=-1, keepdims=True)
        along_lam = (jnp.sum(jnp.square(noise), axis=-1, keepdims=True) - n) * lam_dot
        return changed * (along_x + along_lam) / lam

    return mask, _mean(sample, key, num_samples, x)


def perturbed_topk_mask(
    x: ArrayLike,
    k: ArrayLike,
    *,
    lam: ArrayLike = 1.0,
    num_samples: int = 100,
    key: Array,
    axis: Axis = -1,
) -> Array:
    """Returns the mean of hard top-k masks of ``x`` plus Gaussian noise: random, and sparse for few samples.

    Source: Berthet, Blondel, Teboul, Cuturi, Vert and Bach, "Learning with Differentiable Perturbed Optimizers"
    (NeurIPS 2020), equation 3 for the mask and Proposition 3.1 for the derivative. The mask sums to ``k``, for any
    number of samples. ``lam -> inf`` gives ``k / n`` everywhere, in the mean.

    Mask and derivatives are unbiased. Differentiable once in ``x`` and ``lam``, forwards and backwards, but not in
    ``k``. The standard error falls as ``1 / sqrt(num_samples)``; that of the derivative in ``lam`` grows with the
    square root of n. Takes O(num_samples n) time and O(n) memory, backwards too, since samples are drawn one after the
    other. A new ``num_samples`` compiles a program; a new ``k``, ``lam`` or ``key`` does not.

    Args:
      x: as for ``sigmoid_topk_mask``.
      k: how many are selected: a whole number in ``[0, n]``; one number, or an array that broadcasts to one value per
        row.
      lam: as for ``sigmoid_topk_mask``, the standard deviation of the noise: epsilon in the paper, sigma in its code.
      num_samples: the number of masks in the mean, positive.

      key: a key of ``jax.random``. Every row has its own noise, except rows added by ``jax.vmap`` over ``x`` alone and
        rows on different devices inside ``jax.shard_map``, which need different keys.
      axis: as for ``sigmoid_topk_mask``.

    Returns:
      Array like that of ``sigmoid_topk_mask``, of multiples of ``1 / num_samples`` between 0 and 1.

    Raises:
      NotImplementedError: a second derivative is asked for.

    See also:
      `sparse_topk.topk_mask` without noise; `sparse_topk.hard_topk_mask`, of which it is the mean.

    >>> perturbed_topk_mask([1.0, 3.0, 2.0, 0.5], 2, lam=0.1, key=jax.random.key(0))
    Array([0., 1., 1., 0.], dtype=float32)
    """
    num_samples = check_whole("num_samples", num_samples, 1, jnp.inf, "positive")
    return mask_rows(_perturbed, x, k, WHOLE_UP_TO_N, lam, axis, constants={"key": key}, num_samples=num_samples)
