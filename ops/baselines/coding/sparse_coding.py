"""Sparse coding: the code of a vector in a dictionary under an L1 penalty (the lasso)."""

import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from ...interface.arguments import NON_NEGATIVE, POSITIVE, Range, check_choice, check_scalar, floating
from ...interface.rowwise import FEATURES, ROWS, rowwise
from ...scalar.choice import choose
from .implicit import differentiable
from .least_squares import check_dictionary, curvature_bound, matmul
from .proximal_gradient import minimise
from .soft_threshold import soft_threshold

Solver = Literal["fista", "ista", "homotopy"]
SOLVERS: tuple[str, ...] = ("fista", "ista", "homotopy")


class SparseCode(NamedTuple):
    """The result of `sparse_code`; `...` stands for the leading axes of its `x`.

    Attributes:
      code: `(..., atoms)`, exactly 0 for atoms not used.
      iterations: int32 `(...)`.
      gap: `(...)`, the relative duality gap: the objective is at most `gap` times itself above its minimum.
      converged: bool `(...)`, whether the gap is within the tolerance.
    """

    code: Array
    iterations: Array
    gap: Array
    converged: Array


def sparse_code(
    x: ArrayLike,
    dictionary: ArrayLike,
    lam: ArrayLike,
    *,
    solver: Solver = "fista",
    step: ArrayLike | None = None,
    stages: ArrayLike = 20,
    tolerance: ArrayLike = 1e-4,
    max_iterations: ArrayLike = 1000,
) -> SparseCode:
    """`argmin_y 1/2 ||x - D y||^2 + lam ||y||_1`, by iterative soft thresholding.

    With `S_t` soft thresholding at t, all solvers iterate `y <- S_{step lam}(v + step D^T (x - D v))` from `y = 0`:

    - `"ista"`: `v = y` (Daubechies, Defrise and De Mol, 2004).
    - `"fista"`: `v` has momentum (Beck and Teboulle, 2009; Nesterov, 1983), with adaptive restart.
    - `"homotopy"`: ISTA with the threshold `step lam_l` in its l-th step, `lam_l = lam_max (lam / lam_max)^(l / L)` for
      `l <= L = stages`, and `lam` from there on. `lam_max = max |D^T x|`, from which on the code is 0.

    The companion note ("Sparsity in Deep Learning") writes the objective as `||x - D y||^2 + lam ||y||_1`, without the
    1/2: that is this one with `lam / 2`. Its homotopy iteration has the unit step and the threshold `lam`, so that it
    solves the problem as written here, and safely for `||D||_2 <= 1` only: with `||D||_2^2 > 2` it may diverge. In
    general the step is one over the Lipschitz constant `||D||_2^2` of the gradient, the default here, and multiplies
    the threshold, too.

    Each row stops once it is certified: the scaled residual `u = s (x - D y)`, with `s <= 1` such that
    `max |D^T u| <= lam`, is feasible for the dual problem, and the duality gap, a sum of terms of one sign::

        (1 - s)^2 / 2 ||x - D y||^2 + sum_i (lam |y_i| - s y_i (D^T (x - D y))_i),

    bounds the distance of the objective from its minimum.

    Differentiable in `x`, `dictionary` and `lam`, forwards and backwards, to any order: implicitly at the solution,
    where on the support `D_S^T (x - D_S y_S) = lam sign(y_S)`, with `D_S^T D_S` inverted by conjugate gradients. That
    is exact where the support is the true one and does not change; of a code that has not converged, it is the
    derivative on the support that it has. `iterations`, `gap` and `converged` have no derivative.

    Args:
      x: real array `(..., features)`.
      dictionary: real array `(features, atoms)`; `jax.vmap` for several. Atoms need not be normalised.
      lam: > 0 and finite; a scalar, or an array that broadcasts to one value per row, the shape `(...)`.
      solver: `"fista"`, `"ista"` or `"homotopy"`.
      step: > 0, a scalar; `None` for `1 / curvature_bound(dictionary)`, safe but worth computing once where the
        dictionary stays. Up to `1 / ||D||_2^2` all solvers converge, ISTA below twice that; beyond, they may diverge,
        to a code that is not finite, and `converged` says so.
      stages: > 0, the `L` of the homotopy; a scalar.
      tolerance: of the relative duality gap; a scalar. What float32 can certify is about 1e-6 for `lam = lam_max / 10`
        and a well-conditioned dictionary, and grows as `lam` falls.
      max_iterations: a scalar.

    Returns:
      A `SparseCode` of the dtype of `x` (integers are promoted to float). Computed in float32 at least.

    Raises:
      ValueError: a shape does not fit, or an argument known at trace time is out of range; the message names it and its
        value.

    >>> sparse_code([3.0, 0.5], [[1.0, 0.0], [0.0, 1.0]], 1.0).code.round(1)
    Array([2., 0.], dtype=float32)
    """
    check_choice("solver", solver, SOLVERS)
    x = floating(x)
    return rowwise(
        _coded,
        x,
        axis=-1,
        per_row={"lam": (lam, POSITIVE)},
        constants={
            "dictionary": check_dictionary(dictionary, x),
            "step": None if step is None else check_scalar("step", step, POSITIVE),
            "stages": check_scalar("stages", stages, Range("at least 1", 1)),
            "tolerance": check_scalar("tolerance", tolerance, NON_NEGATIVE),
            "max_iterations": check_scalar("max_iterations", max_iterations, NON_NEGATIVE),
        },
        returns=SparseCode(FEATURES, ROWS, ROWS, ROWS),
        solver=solver,
    )


def _coded(x: Array, lam: Array, dictionary: Array, *, solver: Solver, **settings: Any) -> SparseCode:
    """The codes of rows, with their derivative; `settings` are those of `_solve`."""
    dictionary = dictionary.astype(x.dtype)
    found = _solve(*lax.stop_gradient((x, lam, dictionary)), solver, **lax.stop_gradient(settings))
    code = differentiable(found.code, x, dictionary, lam * jnp.sign(found.code), False)
    return found._replace(code=code)


def _solve(
    x: Array,
    lam: Array,
    dictionary: Array,
    solver: Solver,
    *,
    step: Array | None,
    stages: Array,
    tolerance: Array,
    max_iterations: Array,
) -> SparseCode:
    """The code in units in which neither `x` nor the dictionary exceeds 1, so that no square over- or underflows."""
    step, stages, tolerance = jax.tree.map(lambda value: value.astype(x.dtype), (step, stages, tolerance))
    x_unit = _unit(jnp.max(jnp.abs(x), axis=-1, keepdims=True))
    dictionary_unit = _unit(jnp.max(jnp.abs(dictionary)))
    x, dictionary = x / x_unit, dictionary / dictionary_unit
    lam = lam / x_unit / dictionary_unit
    step = 1.0 / _unit(curvature_bound(dictionary)) if step is None else step * dictionary_unit * dictionary_unit
    strongest = jnp.maximum(jnp.max(jnp.abs(matmul(x, dictionary)), axis=-1, keepdims=True), lam)

    def proximal(point: Array, iteration: Array) -> Array:
        if solver != "homotopy":
            return soft_threshold(point, step * lam)
        progress = jnp.minimum(iteration.astype(x.dtype) / stages, 1.0)
        return soft_threshold(point, step * strongest * (lam / strongest) ** progress)

    state = minimise(
        x,
        dictionary,
        jnp.zeros((x.shape[0], dictionary.shape[1]), x.dtype),
        step,
        proximal,
        functools.partial(_relative_duality_gap, lam=lam),
        accelerated=solver == "fista",
        tolerance=tolerance,
        max_iterations=max_iterations,
    )
    code = state.y * (x_unit / dictionary_unit)
    return SparseCode(code, state.iterations, state.gap, state.gap <= tolerance)


def _unit(size: Array) -> Array:
    return choose(size > 0, size, 1.0)


def _relative_duality_gap(y: Array, residual: Array, correlation: Array, lam: Array) -> Array:
    """The duality gap over the objective, `(rows, 1)`."""
    largest = jnp.max(jnp.abs(correlation), axis=-1, keepdims=True)
    scale = choose(largest > lam, lam / _unit(largest), 1.0)
    square = 0.5 * jnp.sum(jnp.square(residual), axis=-1, keepdims=True)
    slack = jnp.maximum(lam * jnp.abs(y) - scale * y * correlation, 0.0)
    gap = jnp.square(1.0 - scale) * square + jnp.sum(slack, axis=-1, keepdims=True)
    return gap / _unit(square + lam * jnp.sum(jnp.abs(y), axis=-1, keepdims=True))
