"""Implicit maximum likelihood estimation (I-MLE) of a top-k mask: Niepert, Minervini and Franceschi, NeurIPS 2021.

The mask is the mean of hard top-k masks `y` of the entries plus Gaussian noise `z`. A gradient `g` of the loss in the
mask becomes, in the mean over the same noise (their equations 5 and 8),

    (y(x + lam z) - y(x + lam z - step g)) / step.

Their noise is a sum of Gamma variables, and they search for the step; here it moves the entries of a row by lam in the
root mean square, so that there is one strength, as for other masks.
"""

import functools

import jax
import jax.numpy as jnp

import ops


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 4))
def imle_topk_mask(x: jax.Array, k: int, lam: jax.Array, key: jax.Array, num_samples: int = 1) -> jax.Array:
    """Returns the mean of `num_samples` noisy masks of rows `x [..., n]`, with a gradient in `x` alone."""
    return _mean(lambda y: ops.hard_topk_mask(y, k), x, lam, key, num_samples)


def _mean(function, x, lam, key, num_samples):
    """Returns the mean of a function of the noisy entries, a sample at a time."""

    def add(total, key):
        return total + function(x + lam * jax.random.normal(key, x.shape, x.dtype)), None

    return jax.lax.scan(add, jnp.zeros_like(x), jax.random.split(key, num_samples))[0] / num_samples


def _forward(x, k, lam, key, num_samples):
    return imle_topk_mask(x, k, lam, key, num_samples), (x, lam, key)


def _backward(k, num_samples, residuals, gradient):
    x, lam, key = residuals
    size = jnp.sqrt(jnp.mean(jnp.square(gradient), axis=-1, keepdims=True))
    step = lam / jnp.where(size > 0, size, 1.0)

    def difference(y):
        return (ops.hard_topk_mask(y, k) - ops.hard_topk_mask(y - step * gradient, k)) / step

    return _mean(difference, x, lam, key, num_samples), None, None


imle_topk_mask.defvjp(_forward, _backward)
