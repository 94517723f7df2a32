"""Sparse attention: by sparsemax over inner products, and by the nearest convex combination of the keys."""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import PartitionSpec
from jax.typing import ArrayLike

from ...interface.arguments import HUGE, NON_NEGATIVE, Range, check_scalar, check_where, floating, working_dtype
from ...interface.rowwise import FEATURES, ROWS, on_mesh, rowwise, spec_of
from ...scalar.choice import choose
from ...topk import topk_mask
from .implicit import differentiable
from .least_squares import check_dictionary, curvature_bound, matmul
from .proximal_gradient import minimise


def sparsemax_attention(
    query: ArrayLike,
    keys: ArrayLike,
    values: ArrayLike,
    *,
    scale: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """`sparsemax(scale q K^T) V`: attention whose weights are exactly 0 for most keys.

    Sparsemax is the projection onto the simplex (Martins and Astudillo, 2016), `topk_mask(..., k=1, lam=1, p=2)`.

    Args:
      query: real array `(..., queries, features)`.
      keys: `(..., keys, features)`, of the leading axes of `query`.
      values: `(..., keys, outputs)`, of the leading axes of `query`.
      scale: factor of the inner products, a scalar; `None` for `1 / sqrt(features)`.
      where: boolean array that broadcasts to `(..., queries, keys)`: which query may attend to which key. A query that
        may attend to none gets zeros.

    Returns:
      Array `(..., queries, outputs)` of the dtype of `query` (integers are promoted to float). Computed in float32 at
      least.

    Raises:
      ValueError: a shape does not fit.

    >>> sparsemax_attention([[1.0, 0.0]], [[1.0, 0.0], [0.5, 0.0]], [[4.0], [8.0]])
    Array([[5.2928934]], dtype=float32)
    """
    query = floating(query, "query")
    keys, values = floating(keys, "keys"), floating(values, "values")
    if query.ndim < 2:
        raise ValueError(f"query must have the shape (..., queries, features), got shape {query.shape}")
    batch, features = query.shape[:-2], query.shape[-1]
    if keys.ndim != query.ndim or keys.shape[:-2] != batch or keys.shape[-1] != features:
        raise ValueError(f"keys must have the shape {(*batch, 'keys', features)} to fit query, got shape {keys.shape}")
    if values.ndim != query.ndim or values.shape[:-1] != keys.shape[:-1]:
        raise ValueError(f"values must have the shape {(*keys.shape[:-1], 'outputs')}, got shape {values.shape}")
    if scale is not None:
        scale = check_scalar("scale", scale, Range("finite", -HUGE, HUGE))
    scale = 1.0 / math.sqrt(features) if scale is None else scale
    *places, _ = spec_of(query)
    last = spec_of(values)[-1]
    spec = PartitionSpec(*places, None if last in places else last)
    present = None if where is None else jnp.asarray(check_where(where))
    return on_mesh(_attend, spec)(query, keys, values, jnp.asarray(scale), present)


def _attend(query: Array, keys: Array, values: Array, scale: Array, where: ArrayLike | None) -> Array:
    dtype = working_dtype(query.dtype)
    scores = scale.astype(dtype) * matmul(query.astype(dtype), jnp.swapaxes(keys.astype(dtype), -1, -2))
    one = min(1, scores.shape[-1])  # of no keys none can be attended to
    weights = topk_mask(scores, one, lam=1.0, p=2.0, where=where)
    return matmul(weights, values.astype(dtype)).astype(query.dtype)


class ScaleFreeAttention(NamedTuple):
    """The result of `scale_free_attention`; `...` stands for the leading axes of its `x`.

    Attributes:
      weights: `(..., atoms)`, non-negative, adding up to 1, exactly 0 for atoms not used.
      iterations: int32 `(...)`.
      gap: `(...)`, the relative Frank-Wolfe gap: the objective is above its minimum by at most `gap` times its largest
        value on the simplex, that at the atom farthest from `x`.
      converged: bool `(...)`, whether the gap is within the tolerance.
    """

    weights: Array
    iterations: Array
    gap: Array
    converged: Array


def scale_free_attention(
    x: ArrayLike,
    dictionary: ArrayLike,
    *,
    tolerance: ArrayLike = 1e-5,
    max_iterations: ArrayLike = 1000,
) -> ScaleFreeAttention:
    """Returns `argmin ||x - D y||^2` over the simplex: the weights of the point of the atoms' hull nearest to `x`.

    The "distance minimizing" attention of the companion note ("Sparsity in Deep Learning"); its penalty
    `lam ||y||_1` is constant on the simplex and left out. Unlike softmax or sparsemax of `D^T x`, it does not change
    if `x` and `D` are rescaled together, nor if they are shifted together.

    Accelerated projected gradient descent, the projection being `topk_mask(..., k=1, lam=1, p=2)`; each row stops
    once the Frank-Wolfe gap `max_i <D^T (x - D y), e_i - y>` (Jaggi, 2013), which bounds the distance of half the
    objective from its minimum, is within the tolerance.

    Differentiable in `x` and `dictionary`, forwards and backwards, to any order: implicitly on the support found.

    Args:
      x: real array `(..., features)`: queries.
      dictionary: real array `(features, atoms)`: keys, one per column; `jax.vmap` for several.
      tolerance: the relative gap at which a row stops; a scalar.
      max_iterations: the most iterations; a scalar.

    Returns:
      A `ScaleFreeAttention` of the dtype of `x` (integers are promoted to float). Computed in float32 at least. Where
      several combinations are nearest, one of them.

    Raises:
      ValueError: a shape does not fit, or an argument known at trace time is out of range; the message names it and its
        value.

    >>> scale_free_attention([3.0, 1.0], [[1.0, 0.0], [0.0, 1.0]]).weights.round(2)
    Array([1., 0.], dtype=float32)
    """
    x = floating(x)
    return rowwise(
        _attended,
        x,
        axis=-1,
        constants={
            "dictionary": check_dictionary(dictionary, x),
            "tolerance": check_scalar("tolerance", tolerance, NON_NEGATIVE),
            "max_iterations": check_scalar("max_iterations", max_iterations, NON_NEGATIVE),
        },
        returns=ScaleFreeAttention(FEATURES, ROWS, ROWS, ROWS),
    )


def _attended(x: Array, dictionary: Array, tolerance: Array, max_iterations: Array) -> ScaleFreeAttention:
    dictionary, tolerance = dictionary.astype(x.dtype), tolerance.astype(x.dtype)
    # The mean of the atoms has no effect on the simplex; it would only shorten steps and cost digits of the derivative.
    mean = lax.stop_gradient(jnp.mean(dictionary, axis=-1))
    x, dictionary = x - mean[None, :], dictionary - mean[:, None]
    found = _nearest(*lax.stop_gradient((x, dictionary, tolerance)), max_iterations)
    return found._replace(weights=differentiable(found.weights, x, dictionary, jnp.zeros_like(found.weights), True))


def _nearest(x: Array, dictionary: Array, tolerance: Array, max_iterations: Array) -> ScaleFreeAttention:
    """The weights, in coordinates in which no atom exceeds 1 in any feature; the atoms have mean 0."""
    unit = jnp.max(jnp.abs(dictionary))
    unit = choose(unit > 0, unit, 1.0)
    x, dictionary = x / unit, dictionary / unit
    bound = curvature_bound(dictionary)
    squares = jnp.sum(jnp.square(dictionary), axis=0)[None, :] - 2.0 * matmul(x, dictionary)
    largest = 0.5 * (jnp.sum(jnp.square(x), axis=-1, keepdims=True) + jnp.max(squares, axis=-1, keepdims=True))

    def gap(y: Array, residual: Array, correlation: Array) -> Array:
        ahead = correlation - jnp.sum(correlation * y, axis=-1, keepdims=True)
        return jnp.max(ahead, axis=-1, keepdims=True) / choose(largest > 0, largest, 1.0)

    rows, atoms = x.shape[0], dictionary.shape[1]
    state = minimise(
        x,
        dictionary,
        jnp.full((rows, atoms), 1.0 / atoms, x.dtype),
        1.0 / choose(bound > 0, bound, 1.0),
        lambda point, _: topk_mask(point, 1, lam=1.0, p=2.0),
        gap,
        accelerated=True,
        tolerance=tolerance,
        max_iterations=max_iterations,
    )
    return ScaleFreeAttention(state.y, state.iterations, state.gap, state.gap <= tolerance)
