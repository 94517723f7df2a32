"""Sparse coding and sparse attention: the operators that the first of the paper's companion notes compares.

All of them solve least squares `x ~ D y` with a penalty or a constraint on the code `y`. If `y` is sparse, derivatives
come from the optimality conditions, not from the iterations. At a minimiser of `1/2 ||x - D y||^2 + <slope, y>` over
the vectors of a given support, optionally with `sum(y) = 1`,

    P (D^T (x - D y) - slope) = 0,

with `P` the orthogonal projection onto the directions in which `y` may move: entries outside the support are 0, and
entries add up to 0 if their sum is fixed. As long as the support stays the same, the differential is

    P D^T D P dy = P (D^T (dx - dD y) + dD^T (x - D y) - dslope),    dy = P dy.

The lasso has the slope `lam sign(y)`; the projection onto the convex hull of the atoms has the slope 0 and
`sum(y) = 1`.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import PartitionSpec
from jax.typing import ArrayLike

from .. import interface
from ..arithmetic import choose, power_of_two
from ..interface import FEATURES, ROWS, exportable, on_mesh, rowwise, spec_of, varying_as
from ..marginals import conjugate_gradients
from ..topk import hard_topk_mask, topk_mask

__all__ = [
    "Lista",
    "SparseCode",
    "curvature_bound",
    "ridge_code",
    "scale_free_attention",
    "sigshrink",
    "soft_threshold_topk",
    "sparse_code",
    "sparsemax_attention",
]


def __dir__() -> list[str]:
    """Returns the public names; the rest is implementation."""
    return list(__all__)


# The number of steps of the homotopy over which the threshold falls.
_STAGES = 20

# Matrix products in the full precision of their dtype, on accelerators too: gaps are differences.
_matmul = functools.partial(jnp.matmul, precision="highest")


def _check_dictionary(dictionary: ArrayLike, x: Array) -> Array:
    """Returns the dictionary `(features, atoms)` as a floating array, for vectors `x` of shape `(..., features)`."""
    dictionary = interface.floating(dictionary, "dictionary")
    if dictionary.ndim != 2 or 0 in dictionary.shape:
        raise ValueError(f"dictionary must have the shape (features, atoms), none 0, got shape {dictionary.shape}")
    if x.ndim == 0 or x.shape[-1] != dictionary.shape[0]:
        raise ValueError(f"x must have the shape (..., {dictionary.shape[0]}) of the dictionary, got shape {x.shape}")
    return dictionary


def _or_one(size: Array) -> Array:
    """Returns ``size``, with 1 in place of 0, to divide by."""
    return choose(size > 0, size, 1.0)


def curvature_bound(dictionary: ArrayLike) -> Array:
    """Returns `||D||_2^2` rounded up: the Lipschitz constant of the gradient of `1/2 ||x - D y||^2` in `y`.

    A gradient step of 1 over this bound is safe. Takes a singular value decomposition: compute it once per dictionary.

    Args:
      dictionary: real array `(features, atoms)`.

    Returns:
      A scalar of at least float32; 0 for a dictionary of zeros. Its derivative is 0.

    Raises:
      ValueError: the dictionary is not a matrix.

    See also:
      `sparse_code` and `Lista`, whose steps it bounds.

    >>> float(curvature_bound([[3.0, 0.0], [0.0, 1.0]]).round())
    9.0
    """
    dictionary = interface.floating(dictionary, "dictionary")
    _check_dictionary(dictionary, dictionary.T)
    return on_mesh(_squared_norm, PartitionSpec())(dictionary)


def _squared_norm(dictionary: Array) -> Array:
    wide = lax.stop_gradient(dictionary.astype(interface.working_dtype(dictionary.dtype)))
    slack = 1.0 + jnp.sqrt(jnp.finfo(wide.dtype).eps)  # more than the rounding of the decomposition
    return slack * jnp.square(jnp.linalg.norm(wide, 2))


def soft_threshold(x: Array, threshold: Array | float) -> Array:
    """Returns `sign(x) max(|x| - threshold, 0)`, which is `argmin_y |y - x|^2 / 2 + threshold |y|_1`."""
    return jnp.sign(x) * jnp.maximum(jnp.abs(x) - threshold, 0.0)


def sigshrink(x: Array, threshold: Array | float, sharpness: Array | float) -> Array:
    """Returns `x / (1 + exp(-sharpness (|x| - threshold)))`, smooth away from 0 and exactly 0 only there.

    This is SigShrink (Atto, Pastor and Mercier, "Smooth Sigmoid Wavelet Shrinkage for Non-Parametric Estimation",
    ICASSP 2008). `sharpness -> inf` gives *hard* thresholding, which does not shrink the entries that it keeps.

    See also:
      `Lista`, which may shrink so; `soft_threshold_topk`.

    >>> sigshrink(jnp.array([0.1, 3.0]), 1.0, 10.0).round(2)
    Array([0., 3.], dtype=float32)
    """
    x = interface.floating(x)
    return x * jax.nn.sigmoid(sharpness * (jnp.abs(x) - threshold))


def soft_threshold_topk(x: Array, k: Array | int) -> Array:
    """Returns a vector `[n]` after soft thresholding at its (k+1)-th largest magnitude, so that k entries are left.

    Ties at that magnitude leave fewer. `k` may be traced; it is rounded down.

    Raises:
      ValueError: `x` is not a vector, or a known `k` is not in [0, n].

    See also:
      `sparse_topk.hard_topk_mag`, which does not shrink; `sparse_topk.topk_mag`.

    >>> soft_threshold_topk(jnp.array([1.0, -3.0, 2.0]), 2)
    Array([ 0., -2.,  1.], dtype=float32)
    """
    x = interface.floating(x)
    if x.ndim != 1:
        raise ValueError(f"x must be a vector (jax.vmap for more), got shape {x.shape}")
    magnitude = jnp.abs(x)
    kept = hard_topk_mask(magnitude, jnp.floor(k))
    return soft_threshold(x, jnp.where(kept > 0, 0, magnitude).max(initial=0))


def ridge_code(x: ArrayLike, dictionary: ArrayLike, lam: ArrayLike) -> Array:
    """Returns the code of ridge regression, `argmin_y ||x - D y||^2 + lam ||y||^2` (Hoerl and Kennard, 1970).

    It is `(D^T D + lam I)^-1 D^T x = D^T (D D^T + lam I)^-1 x`, by a Cholesky factorisation of the smaller of the two
    matrices. Differentiable in all arguments, to any order.

    Args:
      x: real array `(..., features)`.
      dictionary: real array `(features, atoms)`.
      lam: > 0 and finite, a scalar, in the units of the squared dictionary. Below the largest squared singular value
        times the precision of the dtype, the matrix may not be positive definite in floats; the result is then NaN.

    Returns:
      Array `(..., atoms)` of the dtype of `x` (integers are promoted to float). Computed in float32 at least.

    Raises:
      ValueError: an argument's shape does not fit, or `lam` is known and out of range.

    See also:
      `sparse_code` for a code that is sparse.

    >>> ridge_code([3.0, 1.0], [[1.0, 0.0], [0.0, 1.0]], 1.0).round(1)
    Array([1.5, 0.5], dtype=float32)
    """
    x = interface.floating(x)
    lam, dictionary = interface.check_scalar("lam", lam, interface.POSITIVE), _check_dictionary(dictionary, x)
    return rowwise(_ridge, x, axis=-1, constants={"dictionary": dictionary, "lam": lam}, returns=FEATURES)


def _ridge(x: Array, dictionary: Array, lam: Array) -> Array:
    wide = dictionary.astype(x.dtype)
    few_atoms = wide.shape[1] <= wide.shape[0]
    gram = _matmul(wide.T, wide) if few_atoms else _matmul(wide, wide.T)
    factor = jax.scipy.linalg.cho_factor(gram + lam.astype(x.dtype) * jnp.eye(len(gram), dtype=x.dtype), lower=True)
    if few_atoms:
        return jax.scipy.linalg.cho_solve(factor, _matmul(wide.T, x.T)).T
    return _matmul(wide.T, jax.scipy.linalg.cho_solve(factor, x.T)).T


class _State(NamedTuple):
    """Iterates of proximal gradient descent, one problem per row; scalars per row have the shape `(rows, 1)`."""

    y: Array
    correlation: Array  # D^T (x - D y), the negative gradient of the square
    previous_y: Array
    previous_correlation: Array
    age: Array  # steps since the start or the last restart of the momentum
    iterations: Array
    gap: Array


def _minimise(
    x: Array,
    dictionary: Array,
    start: Array,
    step: Array,
    proximal: Callable[[Array, Array], Array],
    gap: Callable[[Array, Array, Array], Array],
    *,
    accelerated: bool,
    tol: Array,
    max_iter: Array,
) -> _State:
    """Returns the iterates of `y <- prox_{step h}(v + step D^T (x - D v))` once every gap is within `tol`.

    Plain (ISTA), `v = y` (Daubechies, Defrise and De Mol, 2004). Accelerated (FISTA), `v = y + (l - 1) / (l + 2)
    (y - previous y)` at the l-th step (Beck and Teboulle, 2009, with the weights of the note), and `l` starts again at
    1 whenever the momentum points uphill, `<v - y_new, y_new - y> > 0` (O'Donoghue and Candès, 2015). The gradient at
    `v` follows from those at the two last `y` by linearity. A converged row does not change any more, so that its
    result does not depend on other rows; a row whose gap is NaN stops.

    `step` is at most `1 / ||D||_2^2`. `proximal` takes a point `(rows, atoms)`, and the number of the step, from 1,
    `(rows, 1)`. `gap` returns the optimality gap `(rows, 1)` from `y`, `x - D y` and `D^T (x - D y)`.
    """

    def evaluate(y: Array) -> tuple[Array, Array]:
        residual = x - _matmul(y, dictionary.T)
        correlation = _matmul(residual, dictionary)
        return correlation, gap(y, residual, correlation)

    def active(state: _State) -> Array:
        return (state.gap > tol) & (state.iterations < max_iter)

    def iterate(state: _State) -> _State:
        age = state.age.astype(x.dtype)
        momentum = age / (age + 3.0) if accelerated else jnp.zeros_like(age)  # (l - 1) / (l + 2) for l = age + 1
        v = state.y + momentum * (state.y - state.previous_y)
        descent = state.correlation + momentum * (state.correlation - state.previous_correlation)
        y = proximal(v + step * descent, state.iterations + 1)
        uphill = jnp.sum((v - y) * (y - state.y), axis=-1, keepdims=True) > 0
        age = choose(uphill, 0, state.age + 1)
        correlation, gap = evaluate(y)
        new = _State(y, correlation, state.y, state.correlation, age, state.iterations + 1, gap)
        going = active(state)
        return _State(*(choose(going, after, before) for after, before in zip(new, state, strict=True)))

    correlation, first_gap = evaluate(start)
    count = jnp.zeros(first_gap.shape, jnp.int32)
    state = varying_as(_State(start, correlation, start, correlation, count, count, first_gap), x)
    return lax.while_loop(lambda state: jnp.any(active(state)), iterate, state)


def _differentiable(solution: Array, x: Array, dictionary: Array, slope: Array, sum_is_fixed: bool) -> Array:
    """Returns the solution with the derivatives of the module's docstring in `x`, `dictionary` and `slope`.

    They hold in both modes, to any order. The support is that of `solution`, a constant; if its atoms are linearly
    dependent, the derivative has the least norm. Conjugate gradients take O(features + atoms) memory per row.
    `sum_is_fixed` says whether `sum(y) = 1` was required.
    """
    support = solution != 0

    def project(direction: Array) -> Array:
        direction = choose(support, direction, 0.0)
        if not sum_is_fixed:
            return direction
        size = jnp.maximum(jnp.sum(support, axis=-1, keepdims=True), 1).astype(direction.dtype)
        return choose(support, direction - jnp.sum(direction, axis=-1, keepdims=True) / size, 0.0)

    def restricted(direction: Array) -> Array:
        return project(_matmul(_matmul(direction, dictionary.T), dictionary))

    def curvature(direction: Array) -> Array:
        # The identity where P vanishes makes the system regular and leaves its solution in the range of P alone.
        inside = project(direction)
        return restricted(inside) + (direction - inside)

    def solve(_, right: Array) -> Array:
        inside = project(right)
        precision = float(jnp.finfo(right.dtype).eps)
        # A lower curvature, relative to the atoms that the row uses, means linearly dependent atoms: along such a
        # direction the system does not determine the solution.
        squares = jnp.sum(jnp.square(dictionary), axis=0)[:, None]
        min_curvature = precision * _matmul(support.astype(right.dtype), squares)
        # Exact arithmetic needs as many iterations as there are different eigenvalues.
        solved = conjugate_gradients(restricted, inside, 4 * min(dictionary.shape), precision, min_curvature)
        return solved + (right - inside)

    # On its support the solution solves a linear system, so one step of Newton's method has all its derivatives. The
    # length of the step is 0 once the rounding error of the solution is taken off.
    right = project(_matmul(x - _matmul(solution, dictionary.T), dictionary) - slope)
    step = lax.custom_linear_solve(curvature, right - lax.stop_gradient(right), solve, symmetric=True)
    # Outside the range of P there are only rounding errors of the right side, which large atoms make large.
    return solution + project(step)


@exportable
class SparseCode(NamedTuple):
    """The result of `sparse_code` and `scale_free_attention`; `...` stands for the leading axes of their `x`.

    Attributes:
      code: `(..., atoms)`, exactly 0 for unused atoms.
      iterations: int32 `(...)`, the number of iterations.
      gap: `(...)`, a bound of the distance of the objective from its minimum, relative to the objective
        (`sparse_code`), or to its value at the atom farthest from `x` (`scale_free_attention`).
      converged: bool `(...)`, whether the gap is within `tol`.

    See also:
      `sparse_code` and `scale_free_attention`, which return it.
    """

    code: Array
    iterations: Array
    gap: Array
    converged: Array


Solver = Literal["fista", "ista", "homotopy"]


def _constants(dictionary: ArrayLike, x: Array, tol: ArrayLike, max_iter: ArrayLike) -> dict[str, Array]:
    """Returns the arguments that all rows share, after a check."""
    return {
        "dictionary": _check_dictionary(dictionary, x),
        "tol": interface.check_scalar("tol", tol, interface.NON_NEGATIVE),
        "max_iter": interface.check_scalar("max_iter", max_iter, interface.NON_NEGATIVE),
    }


def sparse_code(
    x: ArrayLike,
    dictionary: ArrayLike,
    lam: ArrayLike,
    *,
    solver: Solver = "fista",
    tol: ArrayLike = 1e-4,
    max_iter: ArrayLike = 1000,
) -> SparseCode:
    """Returns the code `argmin_y 1/2 ||x - D y||^2 + lam ||y||_1` (the lasso), by iterative soft thresholding.

    With `S_t` soft thresholding at t and `step = 1 / curvature_bound(D)`, all solvers iterate
    `y <- S_{step lam}(v + step D^T (x - D v))` from `y = 0`:

    - `"ista"`: `v = y` (Daubechies, Defrise and De Mol, 2004).
    - `"fista"`: `v` has momentum (Beck and Teboulle, 2009; Nesterov, 1983), with adaptive restart.
    - `"homotopy"`: ISTA with the threshold `step lam_l` in its l-th step, `lam_l = lam_max (lam / lam_max)^(l / L)` for
      `l <= L = 20`, and `lam` after that. `lam_max = max |D^T x|` is the least `lam` at which the code is 0.

    The companion note ("Sparsity in Deep Learning") writes the objective without the 1/2, so that its `lam` is twice
    this one. Its homotopy iteration has the unit step, which is safe for `||D||_2 <= 1` only.

    A row stops once the duality gap certifies it. The scaled residual `u = s (x - D y)`, with `s <= 1` such that
    `max |D^T u| <= lam`, is feasible for the dual problem, and the gap, a sum of terms of one sign::

        (1 - s)^2 / 2 ||x - D y||^2 + sum_i (lam |y_i| - s y_i (D^T (x - D y))_i),

    bounds the distance of the objective from its minimum.

    Differentiable in `x`, `dictionary` and `lam`, forwards and backwards, to any order: implicitly on the support of
    the code, exact if that is the true support. `iterations`, `gap` and `converged` have no derivative.

    Args:
      x: real array `(..., features)`.
      dictionary: real array `(features, atoms)`; `jax.vmap` for several. Atoms need not be normalised.
      lam: > 0 and finite; a scalar, or an array that broadcasts to one value per row, the shape `(...)`.
      solver: `"fista"`, `"ista"` or `"homotopy"`.
      tol: the relative duality gap at which a row stops; a scalar. float32 can certify about 1e-6 for
        `lam = lam_max / 10` and a well-conditioned dictionary, and less as `lam` falls.
      max_iter: the most iterations; a scalar.

    Returns:
      A `SparseCode` of the dtype of `x` (integers are promoted to float). Computed in float32 at least.

    Raises:
      ValueError: a shape does not fit, or an argument known at trace time is out of range.

    See also:
      `ridge_code` for a dense code; `Lista` for a network of few iterations.

    >>> sparse_code([3.0, 0.5], [[1.0, 0.0], [0.0, 1.0]], 1.0).code.round(1)
    Array([2., 0.], dtype=float32)
    """
    interface.check_choice("solver", solver, ("fista", "ista", "homotopy"))
    x = interface.floating(x)
    return rowwise(
        _coded,
        x,
        axis=-1,
        per_row={"lam": (lam, interface.POSITIVE)},
        constants=_constants(dictionary, x, tol, max_iter),
        returns=SparseCode(FEATURES, ROWS, ROWS, ROWS),
        solver=solver,
    )


def _coded(x: Array, lam: Array, dictionary: Array, *, solver: Solver, tol: Array, max_iter: Array) -> SparseCode:
    """Returns the codes of rows, in units in which `x` and the dictionary are below 2: squares stay in range."""
    inputs = x, dictionary.astype(x.dtype)
    strength = lam
    (x, dictionary), lam, tol = lax.stop_gradient((inputs, lam, tol.astype(x.dtype)))
    # Powers of two, so that nothing is rounded.
    x_unit = power_of_two(_or_one(jnp.max(jnp.abs(x), axis=-1, keepdims=True)))
    dictionary_unit = power_of_two(_or_one(jnp.max(jnp.abs(dictionary))))
    x, dictionary = x / x_unit, dictionary / dictionary_unit
    lam = lam / x_unit / dictionary_unit
    step = 1.0 / _or_one(curvature_bound(dictionary))
    strongest = jnp.maximum(jnp.max(jnp.abs(_matmul(x, dictionary)), axis=-1, keepdims=True), lam)

    def proximal(point: Array, iteration: Array) -> Array:
        if solver != "homotopy":
            return soft_threshold(point, step * lam)
        progress = jnp.minimum(iteration.astype(x.dtype) / _STAGES, 1.0)
        return soft_threshold(point, step * strongest * (lam / strongest) ** progress)

    def relative_duality_gap(y: Array, residual: Array, correlation: Array) -> Array:
        largest = jnp.max(jnp.abs(correlation), axis=-1, keepdims=True)
        scale = choose(largest > lam, lam / _or_one(largest), 1.0)
        square = 0.5 * jnp.sum(jnp.square(residual), axis=-1, keepdims=True)
        slack = jnp.maximum(lam * jnp.abs(y) - scale * y * correlation, 0.0)
        gap = jnp.square(1.0 - scale) * square + jnp.sum(slack, axis=-1, keepdims=True)
        return gap / _or_one(square + lam * jnp.sum(jnp.abs(y), axis=-1, keepdims=True))

    state = _minimise(
        x,
        dictionary,
        jnp.zeros((x.shape[0], dictionary.shape[1]), x.dtype),
        step,
        proximal,
        relative_duality_gap,
        accelerated=solver == "fista",
        tol=tol,
        max_iter=max_iter,
    )
    solution = lax.stop_gradient(state.y)
    x, dictionary = inputs[0] / x_unit, inputs[1] / dictionary_unit
    slope = strength / x_unit / dictionary_unit * jnp.sign(solution)
    code = _differentiable(solution, x, dictionary, slope, False) * (x_unit / dictionary_unit)
    return SparseCode(code, state.iterations, state.gap, state.gap <= tol)


def scale_free_attention(
    x: ArrayLike,
    dictionary: ArrayLike,
    *,
    tol: ArrayLike = 1e-5,
    max_iter: ArrayLike = 1000,
) -> SparseCode:
    """Returns `argmin ||x - D y||^2` over the simplex: the weights of the point in the hull of the atoms nearest `x`.

    This is the "distance minimizing" attention of the companion note ("Sparsity in Deep Learning") without its penalty
    `lam ||y||_1`, which is constant on the simplex. Unlike softmax or sparsemax of `D^T x`, it does not change if `x`
    and `D` are rescaled or shifted together.

    Accelerated projected gradient descent projects by `topk_mask(..., k=1, lam=1, p=2)`. A row stops once its
    Frank-Wolfe gap `max_i <D^T (x - D y), e_i - y>` (Jaggi, 2013), which bounds the distance of half the objective from
    its minimum, is within `tol`. Differentiable like `sparse_code`.

    Args:
      x: real array `(..., features)`: queries.
      dictionary: real array `(features, atoms)`: keys, one per column; `jax.vmap` for several.
      tol: the relative gap at which a row stops; a scalar.
      max_iter: the most iterations; a scalar.

    Returns:
      A `SparseCode` of the dtype of `x` (integers are promoted to float), whose `code` holds the weights: if they are
      not unique, some of them. Computed in float32 at least.

    Raises:
      ValueError: a shape does not fit, or an argument known at trace time is out of range.

    See also:
      `sparsemax_attention` for scores by products; `sparse_topk.sparsemax`.

    >>> scale_free_attention([3.0, 1.0], [[1.0, 0.0], [0.0, 1.0]]).code.round(2)
    Array([1., 0.], dtype=float32)
    """
    x, returns = interface.floating(x), SparseCode(FEATURES, ROWS, ROWS, ROWS)
    constants = _constants(dictionary, x, tol, max_iter)
    return rowwise(_attended, x, axis=-1, constants=constants, returns=returns)


def _attended(x: Array, dictionary: Array, tol: Array, max_iter: Array) -> SparseCode:
    dictionary, tol = dictionary.astype(x.dtype), tol.astype(x.dtype)
    # A shift by the mean of the atoms has no effect on the simplex, but allows longer steps and saves digits.
    mean = lax.stop_gradient(jnp.mean(dictionary, axis=-1))
    x, dictionary = x - mean[None, :], dictionary - mean[:, None]
    inputs = x, dictionary
    x, dictionary, tol = lax.stop_gradient((*inputs, tol))
    # In these coordinates no atom reaches 2 in any feature.
    unit = power_of_two(_or_one(jnp.max(jnp.abs(dictionary))))
    x, dictionary = x / unit, dictionary / unit
    squares = jnp.sum(jnp.square(dictionary), axis=0)[None, :] - 2.0 * _matmul(x, dictionary)
    largest = 0.5 * (jnp.sum(jnp.square(x), axis=-1, keepdims=True) + jnp.max(squares, axis=-1, keepdims=True))

    def gap(y: Array, residual: Array, correlation: Array) -> Array:
        ahead = correlation - jnp.sum(correlation * y, axis=-1, keepdims=True)
        return jnp.max(ahead, axis=-1, keepdims=True) / _or_one(largest)

    atoms = dictionary.shape[1]
    state = _minimise(
        x,
        dictionary,
        jnp.full((x.shape[0], atoms), 1.0 / atoms, x.dtype),
        1.0 / _or_one(curvature_bound(dictionary)),
        lambda point, _: topk_mask(point, 1, lam=1.0, p=2.0),
        gap,
        accelerated=True,
        tol=tol,
        max_iter=max_iter,
    )
    x, dictionary = (each / unit for each in inputs)
    weights = _differentiable(state.y, x, dictionary, jnp.zeros_like(state.y), True)
    return SparseCode(weights, state.iterations, state.gap, state.gap <= tol)


def sparsemax_attention(
    query: ArrayLike, keys: ArrayLike, values: ArrayLike, *, where: ArrayLike | None = None
) -> Array:
    """Returns `sparsemax(q K^T / sqrt(features)) V`: attention whose weights are exactly 0 for most keys.

    Sparsemax is the projection onto the simplex (Martins and Astudillo, 2016).

    Args:
      query: real array `(..., queries, features)`.
      keys: real array `(..., keys, features)` with the leading axes of `query`.
      values: real array `(..., keys, outputs)` with the leading axes of `query`.
      where: boolean array that broadcasts to `(..., queries, keys)`: which query may attend to which key. A query
        without a key gets zeros.

    Returns:
      Array `(..., queries, outputs)` of the dtype of `query` (integers are promoted to float). Computed in float32 at
      least.

    Raises:
      ValueError: a shape does not fit.

    See also:
      `sparse_topk.sparsemax`; `scale_free_attention` for scores by distance.

    >>> sparsemax_attention([[1.0, 0.0]], [[1.0, 0.0], [0.5, 0.0]], [[4.0], [8.0]])
    Array([[5.2928934]], dtype=float32)
    """
    query, keys = interface.floating(query, "query"), interface.floating(keys, "keys")
    values = interface.floating(values, "values")
    if query.ndim < 2:
        raise ValueError(f"query must have the shape (..., queries, features), got shape {query.shape}")
    batch, features = query.shape[:-2], query.shape[-1]
    if keys.ndim != query.ndim or keys.shape[:-2] != batch or keys.shape[-1] != features:
        raise ValueError(f"keys must have the shape {(*batch, 'keys', features)} to fit query, got shape {keys.shape}")
    if values.ndim != query.ndim or values.shape[:-1] != keys.shape[:-1]:
        raise ValueError(f"values must have the shape {(*keys.shape[:-1], 'outputs')}, got shape {values.shape}")
    *places, _ = spec_of(query)
    last = spec_of(values)[-1]
    spec = PartitionSpec(*places, None if last in places else last)
    present = None if where is None else jnp.asarray(interface.check_where(where))
    return on_mesh(_attend, spec)(query, keys, values, present)


def _attend(query: Array, keys: Array, values: Array, where: ArrayLike | None) -> Array:
    dtype = interface.working_dtype(query.dtype)
    scores = _matmul(query.astype(dtype), jnp.swapaxes(keys.astype(dtype), -1, -2)) / math.sqrt(query.shape[-1] or 1)
    weights = topk_mask(scores, min(1, scores.shape[-1]), lam=1.0, p=2.0, where=where)  # there may be no keys
    return _matmul(weights, values.astype(dtype)).astype(query.dtype)


@dataclasses.dataclass(frozen=True, eq=False)
class Lista:
    """A network of a few iterations of ISTA, whose matrices and thresholds are learned and shared by all layers.

    It is Algorithm 3 of Gregor and LeCun, "Learning Fast Approximations of Sparse Coding" (ICML 2010):

        y_1 = h_theta(W x),    y_{l+1} = h_theta(W x + S y_l).

    The initial parameters `W = step D^T`, `S = I - step D^T D` and `theta = step lam`, with
    `step = 1 / curvature_bound(D)` and soft thresholding, give the iterates of ISTA on
    `1/2 ||x - D y||^2 + lam ||y||_1` from 0.

    Attributes:
      dictionary: `(features, atoms)`, for the initial parameters only.
      lam: > 0, a scalar, for the initial thresholds only.
      layers: the number of steps, at least 1.
      shrinkage: `"soft"`, or `"sigshrink"`, which is smooth but nowhere exactly 0.
      sharpness: that of `"sigshrink"`, in units of 1 over the initial threshold.

    Raises:
      ValueError: `layers` or `lam` is not positive, or there is no such shrinkage.

    See also:
      `sparse_code`, whose iterations it unrolls.
    """

    dictionary: ArrayLike
    lam: float
    layers: int
    shrinkage: Literal["soft", "sigshrink"] = "soft"
    sharpness: float = 10.0

    def __post_init__(self) -> None:
        interface.check_choice("shrinkage", self.shrinkage, ("soft", "sigshrink"))
        interface.check_whole("layers", self.layers, 1, float("inf"), "at least 1")
        interface.check_scalar("lam", self.lam, interface.POSITIVE)

    def _step(self, dtype: Any) -> Array:
        return (1.0 / _or_one(curvature_bound(self.dictionary))).astype(dtype)

    def init(self, dtype: Any = jnp.float32) -> dict[str, Array]:
        """Returns the initial `encoder` (features, atoms), `lateral` (atoms, atoms) and `threshold` (atoms,)."""

        dictionary, step = jnp.asarray(self.dictionary, dtype), self._step(dtype)
        atoms = dictionary.shape[1]
        return {
            "encoder": step * dictionary,
            "lateral": jnp.eye(atoms, dtype=dtype) - step * _matmul(dictionary.T, dictionary),
            "threshold": jnp.full((atoms,), self.lam, dtype) * step,
        }

    def __call__(self, parameters: dict[str, Array], x: ArrayLike) -> Array:
        """Returns codes `(..., atoms)` of vectors `(..., features)`, in the dtype of `x`."""
        x = interface.floating(x)
        _check_dictionary(self.dictionary, x)
        dtype = interface.working_dtype(x.dtype)
        encoder, lateral, threshold = (parameters[name].astype(dtype) for name in ("encoder", "lateral", "threshold"))
        steepness = self.sharpness / (self.lam * self._step(dtype))

        def shrink(y: Array) -> Array:
            thresholds = jnp.broadcast_to(threshold, y.shape)
            return soft_threshold(y, thresholds) if self.shrinkage == "soft" else sigshrink(y, thresholds, steepness)

        seen = _matmul(x.astype(dtype), encoder)
        y = shrink(seen)
        for _ in range(self.layers - 1):
            y = shrink(seen + _matmul(y, lateral))
        return y.astype(x.dtype)
