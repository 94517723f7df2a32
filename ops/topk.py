"""Relaxed top-k operators: mask, magnitude and general nonlinearities, and the hard operators that they relax."""

import dataclasses
import functools
from typing import Any, Literal

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from . import interface
from .arithmetic import choose
from .interface import Axis, AxisName, amount, rowwise
from .isotonic.problem import Problem
from .isotonic.solvers import SOLVERS as ISOTONIC_SOLVERS
from .isotonic.solvers import Solver as IsotonicSolver
from .isotonic.solvers import as_solver
from .isotonic.topk import isotonic_topk
from .nonlinearities import ABS, HALF_SQUARE, IDENTITY, Nonlinearity, nonlinearity
from .scalar.equation import Equation, Method
from .scalar.kernels.platforms import unmet_requirement
from .scalar.magnitude import in_units, magnitude_of
from .scalar.mask import anywhere, hard_selection, mask_of
from .scalar.rows import Rows
from .scalar.threshold import remainder

Solver = Literal["threshold", "kernel", "loop", "pav", "dykstra", "dual"] | IsotonicSolver

# The method of the scalar equation for each solver that is named after one.
_METHODS: dict[str, Method] = {"threshold": "auto", "kernel": "kernel", "loop": "loop"}


def relaxed_topk(
    x: ArrayLike,
    k: ArrayLike | None = None,
    *,
    density: ArrayLike | None = None,
    phi: str | Nonlinearity = "identity",
    lam: ArrayLike = 0.1,
    p: float = 2.0,
    axis: Axis = -1,
    where: ArrayLike | None = None,
    solver: Solver = "threshold",
    axis_name: AxisName = None,
) -> Array:
    """Returns ``phi'`` of about the ``k`` largest entries, and exact zeros elsewhere, for any nonlinearity ``phi``.

    This is the gradient in ``x`` of ``f_{phi,R}(x, 1_k)``, with ``R(y) = lam / p * ||y||_p^p`` (Proposition 2 of Sander
    et al., 2023). ``lam -> 0`` gives ``phi'(x)`` at the ``k`` largest entries, in magnitude if ``phi`` is even.

    - ``"identity"`` is ``topk_mask``, ``"half_square"`` is ``topk_mag``.
    - ``"abs"`` is the relaxed signed mask, about ``sign(x)`` at the ``k`` entries of largest magnitude: the maximiser
      of ``<x, y> - lam / p * ||y||_p^p`` over ``|y_i| <= 1, sum(|y|) <= k``. For a large ``lam``, ``sum(|y|)`` is below
      ``k``. Entries equal to 0 then get derivative 0, also for ``p = 2``, where the true one is ``1 / lam``.
    - ``"exp"``, with ``phi(x) = exp(x - 1)``, has the k-support negentropy as regulariser (Appendix B.1).

    Differentiable in ``x``, ``lam`` and ``k``, forwards and backwards, to any order. Takes O(n) time and memory. The
    result has the shape and dtype of ``x``.

    Args:
      x: real array, any shape. A NaN makes its row NaN. If ``phi`` is increasing, entries equal to ``-inf`` get 0 and
        leave the others as if they were absent.
      k, density, lam, p, axis, where, axis_name: as in ``topk_mask``. At ``lam = 0`` this is the hard operator.
      phi: a ``Nonlinearity``, or the name of one of those above.
      solver: ``"threshold"`` solves one scalar equation; it is exact and fastest. On GPUs and TPUs a kernel keeps rows
        on chip if they fit; otherwise a loop passes over them. ``"kernel"`` and ``"loop"`` force one of the two, the
        kernel for float32 and whole rows only (a CPU interprets it, slowly, for tests). The other solvers sort and
        solve the isotonic problem of the paper: ``"pav"`` (exact), ``"dykstra"`` (``p = 2`` only) and ``"dual"`` (both
        iterative, slow if many entries are partly selected), or a solver of ``sparse_topk.isotonic`` with settings,
        like ``Dykstra(max_iter=10, tol=0.0)``. ``sparse_topk.isotonic.topk_solution`` reports whether such a solver
        converged.

    Raises:
      ValueError: an argument known at trace time is out of range.

    See also:
      `topk_mask` and `topk_mag` for the usual ``phi``; `relaxed_topk_value`, of which this is the gradient;
      `Nonlinearity` for a ``phi`` of your own.

    >>> relaxed_topk([1.0, -3.0, 2.5, 2.0], 2, phi="abs", lam=1.0)
    Array([ 0.  , -1.  ,  0.75,  0.25], dtype=float32)
    """
    return _operate(nonlinearity(phi), x, k, density, lam, p, axis, where, axis_name, solver=solver)


def topk_mask(
    x: ArrayLike,
    k: ArrayLike | None = None,
    *,
    density: ArrayLike | None = None,
    lam: ArrayLike = 0.1,
    p: float = 2.0,
    axis: Axis = -1,
    where: ArrayLike | None = None,
    solver: Solver = "threshold",
    axis_name: AxisName = None,
) -> Array:
    """Returns the relaxed top-k mask: about 1 for the ``k`` largest entries, exactly 0 for most others.

    It solves ``max_y <x, y> - lam / p * ||y||_p^p`` over ``0 <= y <= 1, sum(y) = k`` (Proposition 2 of Sander et al.,
    2023, with ``phi(x) = x`` and ``w = 1_k``). ``lam -> 0`` gives the hard mask, ``lam -> inf`` gives
    ``k / n`` everywhere. It is differentiable almost everywhere; for ``p < 2`` also where an entry becomes exactly 0,
    but not where one becomes exactly 1. Adding a constant to ``x`` changes nothing, and
    ``topk_mask(a * x, lam=a * lam)`` is ``topk_mask(x, lam=lam)``.

    With ``lam = 1`` and ``p = 2`` it is the Euclidean projection that others call the box section (jaxopt) or
    budget-sparsemax (entmax); with ``k = 1``, ``p = a`` and ``lam = 1 / (a - 1)``, for ``1 < a <= 2``, it is
    alpha-entmax (Peters et al., 2019), which is sparsemax for ``a = 2``.

    Differentiable in ``x``, ``lam`` and ``k``, forwards and backwards, to any order. If no entry is selected in part,
    the one-sided derivatives in ``k`` differ. The left one is given, that of the last entry selected (tied entries
    share it), and at ``k = 0`` the right one. Takes O(n) time and memory.

    Exact up to rounding for entries that are 0 or between 1e-30 and 1e30 in magnitude, and for larger ones unless
    something overflows. Entries that differ by less than the smallest normal number (1e-38 in float32) may tie.

    Args:
      x: real array, any shape. Entries equal to ``-inf`` get 0 and leave the others as if they were absent; ``+inf``
        entries come first. A NaN makes its row NaN. Integers that JAX's default float does not represent (beyond 2**24,
        or 2**53 with ``jax_enable_x64``) are refused if known, and rounded if traced.
      k: how much is selected: a real number in ``[0, n]``, ``n`` the size of ``x`` along ``axis``; one number, or an
        array that broadcasts to one value per row (the shape of ``x`` without ``axis``). If fewer than ``k``
        entries take part, they all get 1.
      density: instead of ``k``, the share of the entries along ``axis`` that is selected, in [0, 1]; shape as ``k``.
        Then ``k`` is ``density * n``, rounded down, without a derivative.
      lam: strength of the relaxation, 0 or in [1e-32, 1e32], in the units of ``x``; shape as ``k``. At 0 this is the
        hard mask, ties broken by index, with derivative 0 in ``x``. If traced and out of range, the row is NaN.
      p: exponent of the regularisation, a Python number in (1, 2]. Smaller is smoother.
      axis: the axis along which entries compete; a tuple of several, or ``None`` for all.
      where: boolean array, broadcasting against ``x``: entries that take part. The others get 0, and no gradient.
      solver: as in ``relaxed_topk``.
      axis_name: name of the mesh axis (or axes) over which ``axis`` is split, inside ``jax.shard_map``. Each device
        passes its part of ``x`` and gets its part of the mask. A pass over the data communicates three scalars per row,
        for any size of ``x``.

    Returns:
      Array of the shape of ``x``, and of its dtype (integers are promoted to float). Computed in float32 at least.

    Raises:
      ValueError: an argument known at trace time is out of range.

    See also:
      `hard_topk_mask` for exactly ``k`` ones; `straight_through` for those with this gradient; `topk_mag` for
      magnitudes; `soft_topk` for weights and indices; `topk_threshold` for entries that come later; `lam_of_support` to
      choose ``lam``; `topk_fenchel_young_loss` for the loss whose gradient it gives; `topk_mask_tree` for a pytree;
      `knapsack_mask` and `topk_plan` under more constraints.

    >>> topk_mask([1.0, 3.0, 2.5, 2.0], 2, lam=1.0)
    Array([0.  , 1.  , 0.75, 0.25], dtype=float32)
    """
    return _operate(IDENTITY, x, k, density, lam, p, axis, where, axis_name, solver=solver)


def topk_mag(
    x: ArrayLike,
    k: ArrayLike | None = None,
    *,
    density: ArrayLike | None = None,
    lam: ArrayLike = 0.1,
    p: float = 2.0,
    axis: Axis = -1,
    where: ArrayLike | None = None,
    debias: bool = False,
    solver: Solver = "threshold",
    axis_name: AxisName = None,
) -> Array:
    """Returns about the ``k`` entries of largest magnitude, and exact zeros elsewhere: relaxed top-k in magnitude.

    It solves ``max_y <x, y> - k_support_norm(y)^2 / 2 - lam / p * ||y||_p^p`` (Proposition 2 of Sander et al., 2023,
    with ``phi(x) = x^2 / 2`` and ``w = 1_k``). In the paper's definition a kept entry is shrunk, to
    ``x / (1 + lam)`` for ``p = 2``. If ``lam`` is small enough for a single block, the result differs from the hard
    operator by at most ``lam * max(|x|)`` (Section 5). With ``debias`` a fully kept entry is returned exactly as it is,
    and ``lam -> inf`` gives the identity.

    Differentiable in ``x``, ``lam`` and ``k``, forwards and backwards, to any order. The derivative in ``k`` is as for
    ``topk_mask``; only with ``debias`` and ``p < 2`` it is infinite at ``k = 0``, and that without ``debias`` is given.
    An entry that is 0 has the derivative of a kept entry if ``k`` exceeds the number of non-zero entries, and otherwise
    0. (For ``p = 2`` the directional derivative is then not linear, and an element of Clarke's generalised Jacobian is
    given.) Takes O(n) time and memory. Shape, dtype and range are those of ``topk_mask``. Each value is accurate
    relative to itself, but in float32 not beyond ``1e-67 / lam`` of the row's largest entry (for ``p = 2``). If
    ``max(|x|) / lam`` overflows, derivatives are NaN, infinite or too small, but never at ``lam = 0``.

    Args:
      x: real array, any shape. A NaN makes its row NaN.
      k, density, p, axis, where, axis_name: as in ``topk_mask``.
      lam: strength of the relaxation, 0 or in [1e-32, 1e32], without units for ``p = 2``; shape as ``k``. At 0 this is
        the hard operator.
      debias: whether to undo the shrinkage of kept entries.
      solver: as in ``relaxed_topk``.

    Raises:
      ValueError: an argument known at trace time is out of range.

    See also:
      `hard_topk_mag` for exactly ``k`` entries; `straight_through` for those with this gradient; `topk_mask` for the
      largest by value; `topk_mag_tree` for a pytree; `pruning.Pruner` for a network that trains; `k_support_norm` for
      the regulariser.

    >>> topk_mag([1.0, -3.0, 2.0, 0.5], 2, lam=1.0)
    Array([ 0. , -1.5,  1. ,  0. ], dtype=float32)
    """
    debias = interface.check_flag("debias", debias)
    return _operate(HALF_SQUARE, x, k, density, lam, p, axis, where, axis_name, solver=solver, debias=debias)


def sparsemax(x: ArrayLike, *, lam: ArrayLike = 1.0, axis: Axis = -1, where: ArrayLike | None = None) -> Array:
    """Returns the Euclidean projection of ``x / lam`` onto the probability simplex, which is sparse.

    It is ``topk_mask(x, 1, lam=lam)`` (Martins and Astudillo, 2016). Its Jacobian is ``(diag(a) - a a^T / |a|) / lam``,
    ``a`` the indicator of the non-zero entries.

    Args:
      x: real array, any shape. Entries equal to ``-inf`` get 0 and leave the others as if they were absent.
      lam: the temperature, 0 or in [1e-32, 1e32], in the units of ``x``; one number, or one per row. The lower, the
        sparser. At 0 the first of the largest entries gets 1, with derivative 0.
      axis: the axis that sums to 1.
      where: boolean array, broadcasting against ``x``: entries that take part. The others get 0, and no gradient.

    Returns:
      Array of the shape and dtype of ``x`` (integers are promoted to float). Computed in float32 at least.

    Raises:
      ValueError: an argument is out of range.

    See also:
      `topk_mask` for several entries; `baselines.coding.sparsemax_attention`.

    >>> sparsemax([1.0, 0.5, -2.0])
    Array([0.75, 0.25, 0.  ], dtype=float32)
    """
    return topk_mask(x, 1, lam=lam, axis=axis, where=where)


def hard_topk_mask(
    x: ArrayLike,
    k: ArrayLike | None = None,
    *,
    density: ArrayLike | None = None,
    axis: Axis = -1,
    where: ArrayLike | None = None,
    axis_name: AxisName = None,
) -> Array:
    """Returns the top-k mask: ones at the ``k`` largest entries, zeros elsewhere; the first of equal entries wins.

    A few passes over the data find the k-th largest value, without a sort. The derivative is 0. Arguments, result and
    errors are as in ``topk_mask``, except that ``k`` is a whole number and integers of any size are compared exactly.

    See also:
      `topk_mask` for a gradient; `straight_through` to have both.

    >>> hard_topk_mask([1.0, 3.0, 2.0, 3.0], 2)
    Array([0., 1., 0., 1.], dtype=float32)
    """
    return _operate(IDENTITY, x, k, density, 0.0, 2.0, axis, where, axis_name, whole=True)


def hard_topk_mag(
    x: ArrayLike,
    k: ArrayLike | None = None,
    *,
    density: ArrayLike | None = None,
    axis: Axis = -1,
    where: ArrayLike | None = None,
    axis_name: AxisName = None,
) -> Array:
    """Returns the ``k`` entries of largest magnitude unchanged, and zeros elsewhere.

    The derivative is 1 for kept entries and 0 for others. Arguments, result and errors are as in ``hard_topk_mask``.

    See also:
      `topk_mag` for a gradient in pruned entries, too; `straight_through` to have both; `topk_mag_tree` with ``lam=0``
      for a pytree.

    >>> hard_topk_mag([1.0, -3.0, 2.0, 0.5], 2)
    Array([ 0., -3.,  2.,  0.], dtype=float32)
    """
    return _operate(HALF_SQUARE, x, k, density, 0.0, 2.0, axis, where, axis_name, whole=True, debias=True)


def _operate(
    phi: Nonlinearity,
    x: ArrayLike,
    k: ArrayLike | None,
    density: ArrayLike | None,
    lam: ArrayLike,
    p: float,
    axis: Axis,
    where: ArrayLike | None,
    axis_name: AxisName,
    *,
    whole: bool = False,
    solver: Solver = "threshold",
    debias: bool = False,
) -> Array:
    """Returns the operator of ``phi``; ``whole`` requires whole numbers ``k``."""
    p = interface.check_p(p)
    if isinstance(solver, str):
        interface.check_choice("solver", solver, (*_METHODS, *ISOTONIC_SOLVERS))
    method = _METHODS.get(solver) if isinstance(solver, str) else None
    isotonic = None if method else as_solver(solver, p)
    if method in (None, "kernel") and axis_name is not None:
        raise ValueError(f"axis_name must be None unless solver is 'threshold' or 'loop', got {axis_name!r}")
    equation = Equation(p, phi, Rows(-1, axis_name), interface.rows_with_zero_lam(lam), method or "auto")
    x = interface.real(x)
    allowed = interface.WHOLE_UP_TO_N if whole else interface.UP_TO_N
    per_row = {"k": (amount(k, density), allowed), "lam": (lam, interface.STRENGTH)}
    size = interface.size_along(x.shape, interface.check_axes(axis, x.ndim))
    if method == "kernel" and (requirement := unmet_requirement(size, interface.working_dtype(x.dtype))):
        raise ValueError(f"x must have {requirement}, for solver='kernel'")
    shared: Any = {"axis": axis, "per_row": per_row, "where": where, "axis_name": axis_name, "equation": equation}
    if equation.zero == "all" and phi in (IDENTITY, ABS, HALF_SQUARE) and interface.is_wide(x.dtype):
        return _hard_topk_of_integers(x, **shared)
    return rowwise(_relaxed, x, **shared, debias=debias, isotonic=isotonic)


def _relaxed(
    x: Array,
    k: Array,
    lam: Array,
    where: Array | None = None,
    *,
    equation: Equation,
    debias: bool,
    isotonic: IsotonicSolver | None,
) -> Array:
    """Returns the operator of rows ``(rows, n)``."""
    operator = mask_of if equation.linear else functools.partial(magnitude_of, debias=debias)
    absent = 0.0 if equation.phi.even else -jnp.inf
    present = None if where is None else (where,)
    entries = (x if where is None else choose(where, x, absent),)
    if isotonic is None or equation.zero == "all":
        (y,) = operator(entries, k, lam, equation, where=present)
        return y if where is None else choose(where, y, 0.0)
    if equation.zero == "some":
        is_hard = lam == 0
        lam = choose(is_hard, 1.0, lam)  # any positive number, so that no derivative contains 1 / 0
    (row,), scaled, unit = in_units(entries, lam, equation)
    problem = Problem(equation.p, equation.phi)
    y = unit * isotonic_topk(row, k, scaled, problem, isotonic, debias=debias, where=where)[0]
    if equation.zero == "some":
        hard = functools.partial(operator, equation=dataclasses.replace(equation, zero="all"), where=present)
        zeros = jnp.zeros_like(k)
        (exact,) = lax.cond(anywhere(is_hard), lambda x: hard(x, k, zeros), lambda x: (jnp.zeros_like(x[0]),), entries)
        y = choose(is_hard, exact, y)
    return y if where is None else choose(where, y, 0.0)


def _hard_topk_of_integers(x: Array, *, equation: Equation, **options: Any) -> Array:
    """Returns the hard operator of integers that floats do not represent exactly; kept values are rounded to float.

    The upper halves of their bits are compared first, and the lower halves break ties, so that the selection is exact.
    """
    keys = x
    if equation.phi.even and jnp.issubdtype(x.dtype, jnp.signedinteger):
        unsigned = x.astype(f"uint{jnp.iinfo(x.dtype).bits}")
        keys = choose(x < 0, jnp.zeros_like(unsigned) - unsigned, unsigned)  # right for the least integer, too
    half, dtype = jnp.iinfo(x.dtype).bits // 2, jnp.result_type(float)
    high, low = (keys >> half).astype(dtype), (keys & (2**half - 1)).astype(dtype)
    mask = rowwise(_selected_by_halves, high, aligned={"low": low}, rows=equation.rows, **options)
    if not equation.phi.even:
        return mask
    values = jnp.sign(x) if equation.linear else x
    return choose(mask == 0, 0.0, values.astype(mask.dtype) * mask)


def _selected_by_halves(x: Array, low: Array, k: Array, lam: Array, where: Array | None = None, *, rows: Rows) -> Array:
    """Returns the hard mask of integers with the upper halves ``x`` and the lower halves ``low``."""
    high = x if where is None else choose(where, x, -jnp.inf)

    (selected,) = hard_selection((high,), k, rows)
    least = -rows.max(lambda pair: choose(pair[1] > 0, -pair[0], -jnp.inf), ((high, selected),))
    above = rows.sum(lambda s: s > least, (high,))
    (among,) = hard_selection((choose(high == least, low, -jnp.inf),), jnp.maximum(remainder(k, above), 0.0), rows)
    return choose(high > least, 1.0, among)
