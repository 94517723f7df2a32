"""The operators that are tried: how each is called, and which oracle answers for it."""

import dataclasses
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import ops
from ops.losses import Target
from scripts.fuzz import grouping
from scripts.fuzz.oracle import grouped, knapsack, loss, plan, projection, topk, value
from scripts.fuzz.oracle.equation import Curve
from scripts.fuzz.oracle.topk import Truth
from scripts.fuzz.quantity import Quantity
from scripts.fuzz.setting import Rows, Setting

Call = Callable[..., Array]

# At which residual a plan has converged, by default.
_TOLERANCES = {"float32": 1e-4, "float64": 1e-9}
# Those of `scripts.fuzz.grouping`.
_GROUPS = {"blocks": ops.Blocks((2, 4)), "channels": ops.Channels(0), "runs": ops.NM(4)}


@dataclasses.dataclass(frozen=True)
class Operator:
    """An operator under test.

    Attributes:
      call: of a setting, the function of ``(x, k, lam, where, extra, axis)`` to call.
      expect: the truth about rows of a setting.
      arguments: of ``x``, ``k`` and ``lam``, those that it takes.
      share: how many of a hundred settings are its own.
    """

    call: Callable[[Setting], Call]
    expect: Callable[[Setting, Rows], Truth]
    arguments: tuple[str, ...]
    share: int


def _curve(setting: Setting) -> Curve:
    magnitude = setting.operator in ("topk_mag", "hard_topk_mag", "topk_mag_tree", "hard_topk_mag_tree")
    return Curve("half_square" if magnitude else setting.phi)


def _top_k(setting: Setting, rows: Rows) -> Truth:
    curve = _curve(setting)
    of = topk.numbers(rows.x, rows.where, rows.k, rows.lam, curve.even)
    return topk.expect(of, setting.p, curve, setting.precision, rows.cotangent, setting.debias)


def _hard(setting: Setting, rows: Rows) -> Truth:
    return _top_k(setting, dataclasses.replace(rows, lam=0 * rows.lam))


def _tree(setting: Setting, rows: Rows) -> Truth:
    whole = setting.operator.startswith("hard")
    if not setting.groups:
        return (_hard if whole else _top_k)(setting, rows)
    lam = 0 * rows.lam if whole else rows.lam
    of = grouped.Grouped(rows.x, rows.k, lam, rows.cotangent, grouping.members(setting.groups, setting.n))
    if setting.groups == "runs":
        return grouped.expect_runs(of, setting.p, _curve(setting), setting.precision, setting.debias)
    return grouped.expect(of, setting.p, _curve(setting), setting.precision, setting.debias, whole)


def _plan(setting: Setting, rows: Rows) -> Truth:
    height, width = setting.matrix

    def matrices(values: np.ndarray) -> np.ndarray:
        return values.astype(np.float64).reshape(-1, height, width)

    def scalars(values: np.ndarray) -> np.ndarray:
        return values.astype(np.float64)[:, None, None]

    exponent = float(1 / (np.longdouble(setting.p) - 1))
    of = plan.Problem(matrices(rows.x), scalars(rows.k), matrices(rows.extra)[:, :1], scalars(rows.lam), exponent)
    return plan.expect(of, setting.p, setting.precision, _TOLERANCES[setting.working], matrices(rows.cotangent))


def _sparsemax(setting: Setting, rows: Rows) -> Truth:
    one = np.ones_like(rows.k)
    return _top_k(setting, dataclasses.replace(rows, k=one, lam=one))


def _value(setting: Setting, rows: Rows) -> Truth:
    curve = _curve(setting)
    of = topk.numbers(rows.x, rows.where, rows.k, rows.lam, curve.even)
    return value.expect(of, setting.p, curve, setting.precision, rows.cotangent)


def _sum(setting: Setting, rows: Rows) -> Truth:
    return _value(setting, dataclasses.replace(rows, lam=0 * rows.lam))


def _loss(setting: Setting, rows: Rows) -> Truth:
    of = topk.numbers(rows.x, rows.where, rows.k, rows.lam, even=False)
    smooth = setting.target == "smooth"
    return loss.expect(of, setting.p, setting.precision, rows.cotangent, rows.extra, rows.where, smooth)


def _knapsack(setting: Setting, rows: Rows) -> Truth:
    costs = rows.extra
    return knapsack.expect(
        rows.x, costs, _caps(costs), rows.where, rows.k, rows.lam, setting.p, setting.precision, rows.cotangent
    )


def _caps(costs: Any) -> Any:
    """2 of what is cheap, 1 of what is not."""
    return 1 + (costs < 1).astype(costs.dtype)


def _knapsack_call(setting: Setting) -> Call:
    def call(x: Array, k: Array, lam: Array, where: Array, extra: Array, axis: int) -> Array:
        caps, present = _caps(extra), where if setting.where else None
        return ops.knapsack_mask(x, k, costs=extra, caps=caps, lam=lam, p=setting.p, axis=axis, where=present)

    return call


def _amount(setting: Setting, k: Array) -> dict[str, Any]:
    """How much to select: ``k``, or the share of what competes that it is."""
    return {"density": k / setting.competing} if setting.density else {"k": k}


def _plain(name: str, *options: str) -> Callable[[Setting], Call]:
    """A function of ``ops`` that takes ``k`` and ``lam``, with these options of the setting."""

    def of(setting: Setting) -> Call:
        chosen: dict[str, Any] = {option: getattr(setting, option) for option in options}

        def call(x: Array, k: Array, lam: Array, where: Array, extra: Array, axis: int) -> Array:
            present = where if setting.where else None
            options = _amount(setting, k) | chosen
            return getattr(ops, name)(x, lam=lam, p=setting.p, axis=axis, where=present, **options)

        return call

    return of


def _hard_call(name: str) -> Callable[[Setting], Call]:
    def of(setting: Setting) -> Call:
        def call(x: Array, k: Array, lam: Array, where: Array, extra: Array, axis: int) -> Array:
            present = where if setting.where else None
            return getattr(ops, name)(x, axis=axis, where=present, **_amount(setting, k))

        return call

    return of


def _sparsemax_call(setting: Setting) -> Call:
    def call(x: Array, k: Array, lam: Array, where: Array, extra: Array, axis: int) -> Array:
        return ops.sparsemax(x, axis=axis, where=where if setting.where else None)

    return call


def _slots_call(setting: Setting) -> Call:
    """All entries in slots, and put back from there."""

    def call(x: Array, k: Array, lam: Array, where: Array, extra: Array, axis: int) -> Array:
        present = where if setting.where else None
        options = _amount(setting, k) | {"num_slots": setting.n, "lam": lam, "p": setting.p}
        found = ops.soft_topk(x, axis=axis, where=present, **options)
        left = jnp.expand_dims(found.overflow, axis)  # exactly 0
        return jnp.put_along_axis(x, found.indices, found.weights + left, axis=axis, inplace=False)

    return call


def _leaves(setting: Setting, x: Array) -> list[Array]:
    """A row cut into leaves."""
    if setting.groups:
        above, below = grouping.shapes(setting.n)
        cut = above[0] * above[1]
        return [x[:cut].reshape(above), x[cut:].reshape(below)]
    first, second = setting.n // 3, setting.n // 2
    return [x[:first], x[None, first:second], x[second:]]


def _tree_call(name: str) -> Callable[[Setting], Call]:
    """Of one row at a time, cut into leaves."""

    def of(setting: Setting) -> Call:
        options: dict[str, Any] = {"groups": _GROUPS.get(setting.groups)}
        if name == "topk_mag_tree":
            options["debias"] = setting.debias

        def call(x: Array, k: Array, lam: Array, where: Array, extra: Array, axis: int) -> Array:
            def one(x: Array, k: Array, lam: Array) -> Array:
                strength = {} if name.startswith("hard") else {"lam": lam, "p": setting.p}
                kept = getattr(ops, name)(_leaves(setting, x), **_amount(setting, k), **strength, **options)
                return jnp.concatenate([leaf.ravel() for leaf in kept])

            return jax.vmap(one)(x, k, lam)

        return call

    return of


def _plan_call(setting: Setting) -> Call:
    """The plan, or NaN where it has not converged."""

    def call(x: Array, k: Array, lam: Array, where: Array, extra: Array, axis: int) -> Array:
        along = axis % x.ndim
        shape = (*x.shape[:along], *setting.matrix, *x.shape[along + 1 :])
        limit = lax.index_in_dim(extra.reshape(shape), 0, along, keepdims=False)
        amount = jnp.expand_dims(k, along)
        options: dict[str, Any] = {"p": setting.p, "axis": (along, along + 1), "max_iter": 2000}
        found = ops.topk_plan(x.reshape(shape), amount, limit, lam=lam, **options)
        converged = jnp.expand_dims(found.converged, (along, along + 1))
        return jnp.where(converged, found.plan, jnp.nan).reshape(x.shape)

    return call


def _loss_call(setting: Setting) -> Call:
    def call(x: Array, k: Array, lam: Array, where: Array, extra: Array, axis: int) -> Array:
        present = where if setting.where else None
        return ops.topk_fenchel_young_loss(
            x, extra, k, lam=lam, p=setting.p, target=cast(Target, setting.target), axis=axis, where=present
        )

    return call


def _projection(setting: Setting, rows: Rows) -> Truth:
    places = np.broadcast_to(np.arange(1, setting.n + 1, dtype=rows.k.dtype), rows.x.shape)
    x, w = {
        "soft_sort": (places, rows.x),
        "soft_rank": (rows.x, places),
        "project_permutahedron": (rows.x, rows.extra),
    }[setting.operator]
    of_weights = setting.operator == "soft_sort"
    return projection.expect(x, w, rows.lam, setting.p, setting.precision, rows.cotangent, of_weights)


def _projection_call(setting: Setting) -> Call:
    def call(x: Array, k: Array, lam: Array, where: Array, extra: Array, axis: int) -> Array:
        if setting.operator == "project_permutahedron":
            return ops.project_permutahedron(x, extra, lam=lam, p=setting.p, axis=axis)
        operator = ops.soft_sort if setting.operator == "soft_sort" else ops.soft_rank
        return operator(x, lam=lam, p=setting.p, axis=axis)

    return call


OPERATORS: dict[str, Operator] = {
    "topk_mask": Operator(_plain("topk_mask", "solver"), _top_k, ("x", "k", "lam"), 21),
    "topk_mag": Operator(_plain("topk_mag", "solver", "debias"), _top_k, ("x", "k", "lam"), 21),
    "relaxed_topk": Operator(_plain("relaxed_topk", "solver", "phi"), _top_k, ("x", "k", "lam"), 12),
    "soft_topk": Operator(_slots_call, _top_k, ("x", "k", "lam"), 4),
    "topk_mag_tree": Operator(_tree_call("topk_mag_tree"), _tree, ("x", "k", "lam"), 6),
    "topk_mask_tree": Operator(_tree_call("topk_mask_tree"), _tree, ("x", "k", "lam"), 5),
    "knapsack_mask": Operator(_knapsack_call, _knapsack, ("x", "k", "lam"), 5),
    "topk_plan": Operator(_plan_call, _plan, ("x", "k", "lam"), 4),
    "relaxed_topk_value": Operator(_plain("relaxed_topk_value", "phi"), _value, ("x", "k", "lam"), 6),
    "topk_fenchel_young_loss": Operator(_loss_call, _loss, ("x", "k", "lam"), 8),
    "topk_sum": Operator(_hard_call("topk_sum"), _sum, ("x",), 2),
    "sparsemax": Operator(_sparsemax_call, _sparsemax, ("x",), 3),
    "soft_sort": Operator(_projection_call, _projection, ("x", "lam"), 2),
    "soft_rank": Operator(_projection_call, _projection, ("x", "lam"), 2),
    "project_permutahedron": Operator(_projection_call, _projection, ("x", "lam"), 2),
    "hard_topk_mask": Operator(_hard_call("hard_topk_mask"), _hard, ("x",), 4),
    "hard_topk_mag_tree": Operator(_tree_call("hard_topk_mag_tree"), _tree, ("x",), 2),
    "hard_topk_mask_tree": Operator(_tree_call("hard_topk_mask_tree"), _tree, ("x",), 2),
    "hard_topk_mag": Operator(_hard_call("hard_topk_mag"), _hard, ("x",), 3),
}


def _without_k(quantity: Quantity) -> Quantity:
    """A share is rounded down to how many that is, and has no derivative."""
    nothing = np.zeros_like(quantity.wanted)
    return Quantity.of("d/dk", nothing, nothing) if quantity.name == "d/dk" else quantity


def truth(setting: Setting, rows: Rows) -> Truth:
    """What the operator should return for these rows.

    Numbers too small to be normal may be taken for 0, as XLA takes them on most hardware.
    """
    tiny = setting.precision.tiny

    def expect(setting: Setting, rows: Rows) -> Truth:
        if not setting.density:
            return OPERATORS[setting.operator].expect(setting, rows)
        found = OPERATORS[setting.operator].expect(setting, dataclasses.replace(rows, k=np.floor(rows.k)))
        return dataclasses.replace(found, quantities=[_without_k(quantity) for quantity in found.quantities])

    as_given = expect(setting, rows)
    small = {name: np.abs(getattr(rows, name).astype(np.float64)) < tiny for name in ("x", "lam", "extra")}
    flushed: dict[str, Any] = {
        name: np.where(small[name], 0, getattr(rows, name)).astype(getattr(rows, name).dtype) for name in small
    }
    changed = (flushed["lam"] != rows.lam)[:, None]
    for name in ("x", "extra"):
        changed = changed | ((getattr(rows, name) != 0) & small[name]).any(axis=1, keepdims=True)
    if not changed.any():
        return as_given
    as_zero = expect(setting, dataclasses.replace(rows, **flushed))
    quantities = []
    for one, other in zip(as_given.quantities, as_zero.quantities, strict=True):
        instead = np.where(other.wanted == one.wanted, other.other, other.wanted)
        either = dataclasses.replace(
            one, other=instead, bound=np.maximum(one.bound, other.bound), judged=one.judged & other.judged
        )
        quantities.append(one.where(changed, either))
    return dataclasses.replace(as_given, quantities=quantities)
