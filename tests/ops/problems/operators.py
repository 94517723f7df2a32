"""The operators that are tried: how each is called, and which oracle answers for it."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import ops
from tests.ops.oracle.equation import Curve
from tests.ops.oracle.groups import groups, runs
from tests.ops.oracle.knapsack import knapsack
from tests.ops.oracle.permutahedron import project
from tests.ops.oracle.plan import plan
from tests.ops.oracle.problem import Answer, Problem
from tests.ops.oracle.reals import Real
from tests.ops.oracle.topk import topk
from tests.ops.oracle.value import loss, value
from tests.ops.problems.setting import Setting

Call = Callable[..., Array]
Oracle = Callable[[Setting, Problem], Answer]

_TOLERANCES = {"float32": 1e-4, "float64": 1e-9}  # residuals at which a plan has converged, by default
_GROUPS = {"": None, "blocks": ops.Blocks((2, 4)), "channels": ops.Channels(0), "runs": ops.NM(4)}


class Operator(NamedTuple):
    """An operator under test.

    Attributes:
      call: of a setting, the function of ``(x, k, lam, where, extra, axis)`` to call.
      oracle: the answer to the rows of a setting.
      arguments: of ``x``, ``k`` and ``lam``, those that it takes.
      share: how many of a hundred settings are its own.
    """

    call: Callable[[Setting], Call]
    oracle: Oracle
    arguments: tuple[str, ...]
    share: int


def _curve(setting: Setting) -> Curve:
    return Curve("half_square" if "topk_mag" in setting.operator else setting.phi)


def _topk(setting: Setting, of: Problem) -> Answer:
    return topk(of, _curve(setting), setting.debias)


def _hard(oracle: Oracle) -> Oracle:
    return lambda setting, of: oracle(setting, dataclasses.replace(of, lam=0 * of.lam))


def _tree(setting: Setting, of: Problem) -> Answer:
    if not setting.groups:
        return _topk(setting, of)
    if setting.groups == "runs":
        return runs(of, setting.members, _curve(setting), setting.debias)
    return groups(of, setting.members, _curve(setting), setting.debias, setting.operator.startswith("hard"))


def _projected(setting: Setting, of: Problem) -> Answer:
    places = np.broadcast_to(np.arange(1, setting.n + 1), of.x.shape).astype(Real)
    x, w = {
        "soft_sort": (places, of.x),
        "soft_rank": (of.x, places),
        "project_permutahedron": (of.x, of.extra),
    }[setting.operator]
    return project(of, x, w, setting.operator == "soft_sort")


def _caps(costs: Any) -> Any:
    """2 of what is cheap, 1 of what is not."""
    return 1 + (costs < 1).astype(costs.dtype)


def _amount(setting: Setting, k: Array) -> dict[str, Array]:
    """How much to select: ``k``, or the share of what competes that it is."""
    return {"density": k / setting.competing} if setting.density else {"k": k}


def _call(name: str, *options: str, strength: bool = True, amount: bool = True) -> Callable[[Setting], Call]:
    """A function of ``ops`` with these options of the setting, and with ``k`` and ``lam`` if it takes them."""

    def of(setting: Setting) -> Call:
        def call(x: Array, k: Array, lam: Array, where: Array, extra: Array, axis: Any) -> Array:
            given: dict[str, Any] = {option: getattr(setting, option) for option in options}
            given |= {"lam": lam, "p": setting.p} if strength else {}
            given |= _amount(setting, k) if amount else {}
            return getattr(ops, name)(x, axis=axis, where=where if setting.where else None, **given)

        return call

    return of


def _knapsack_call(setting: Setting) -> Call:
    def call(x: Array, k: Array, lam: Array, where: Array, extra: Array, axis: Any) -> Array:
        present = where if setting.where else None
        return ops.knapsack_mask(x, k, costs=extra, caps=_caps(extra), lam=lam, p=setting.p, axis=axis, where=present)

    return call


def _slots_call(setting: Setting) -> Call:
    """All entries in slots, and put back from there."""

    def call(x: Array, k: Array, lam: Array, where: Array, extra: Array, axis: int) -> Array:
        present = where if setting.where else None
        options: dict[str, Any] = _amount(setting, k) | {"num_slots": setting.n, "lam": lam, "p": setting.p}
        found = ops.soft_topk(x, axis=axis, where=present, **options)
        left = jnp.expand_dims(found.overflow, axis)  # exactly 0
        return jnp.put_along_axis(x, found.indices, found.weights + left, axis=axis, inplace=False)

    return call


def _leaves(setting: Setting, x: Array) -> list[Array]:
    """A row cut into leaves."""
    if setting.groups:
        cuts = np.cumsum([height * width for height, width in setting.leaves])
        return [leaf.reshape(shape) for leaf, shape in zip(jnp.split(x, cuts[:-1]), setting.leaves, strict=True)]
    first, second = setting.n // 3, setting.n // 2
    return [x[:first], x[None, first:second], x[second:]]


def _tree_call(name: str) -> Callable[[Setting], Call]:
    """Of one row at a time, cut into leaves; what is called hard is the operator at ``lam = 0``."""

    def of(setting: Setting) -> Call:
        options: dict[str, Any] = {"groups": _GROUPS[setting.groups]}
        options |= {"debias": setting.debias} if name == "topk_mag_tree" else {}

        def one(x: Array, k: Array, lam: Array) -> Array:
            strength = {"lam": 0.0 if name.startswith("hard") else lam, "p": setting.p}
            kept = getattr(ops, name.removeprefix("hard_"))(
                _leaves(setting, x), **_amount(setting, k), **strength, **options
            )
            return jnp.concatenate([leaf.ravel() for leaf in kept])

        return lambda x, k, lam, where, extra, axis: jax.vmap(one)(x, k, lam)

    return of


def _plan_call(setting: Setting) -> Call:
    """The plan, or NaN where it has not converged."""

    def call(x: Array, k: Array, lam: Array, where: Array, extra: Array, axis: int) -> Array:
        along = axis % x.ndim
        shape = (*x.shape[:along], *setting.matrix, *x.shape[along + 1 :])
        limit = lax.index_in_dim(extra.reshape(shape), 0, along, keepdims=False)
        options: dict[str, Any] = {"p": setting.p, "axis": (along, along + 1), "max_iter": 2000}
        found = ops.topk_plan(x.reshape(shape), jnp.expand_dims(k, along), limit, lam=lam, **options)
        converged = jnp.expand_dims(found.converged, (along, along + 1))
        return jnp.where(converged, found.plan, jnp.nan).reshape(x.shape)

    return call


def _loss_call(setting: Setting) -> Call:
    def call(x: Array, k: Array, lam: Array, where: Array, extra: Array, axis: int) -> Array:
        options: dict[str, Any] = {"target": setting.target, "where": where if setting.where else None}
        return ops.topk_fenchel_young_loss(x, extra, k, lam=lam, p=setting.p, axis=axis, **options)

    return call


def _projection_call(setting: Setting) -> Call:
    def call(x: Array, k: Array, lam: Array, where: Array, extra: Array, axis: int) -> Array:
        given = (x, extra) if setting.operator == "project_permutahedron" else (x,)
        return getattr(ops, setting.operator)(*given, lam=lam, p=setting.p, axis=axis)

    return call


_ALL = ("x", "k", "lam")
OPERATORS: dict[str, Operator] = {
    "topk_mask": Operator(_call("topk_mask", "solver"), _topk, _ALL, 21),
    "topk_mag": Operator(_call("topk_mag", "solver", "debias"), _topk, _ALL, 21),
    "relaxed_topk": Operator(_call("relaxed_topk", "solver", "phi"), _topk, _ALL, 12),
    "soft_topk": Operator(_slots_call, _topk, _ALL, 4),
    "topk_mag_tree": Operator(_tree_call("topk_mag_tree"), _tree, _ALL, 6),
    "topk_mask_tree": Operator(_tree_call("topk_mask_tree"), _tree, _ALL, 5),
    "knapsack_mask": Operator(_knapsack_call, lambda setting, of: knapsack(of, _caps(of.extra)), _ALL, 5),
    "topk_plan": Operator(
        _plan_call, lambda setting, of: plan(of, setting.matrix, _TOLERANCES[setting.working]), _ALL, 4
    ),
    "relaxed_topk_value": Operator(
        _call("relaxed_topk_value", "phi"), lambda setting, of: value(of, _curve(setting)), _ALL, 8
    ),
    "topk_fenchel_young_loss": Operator(_loss_call, lambda setting, of: loss(of, setting.target == "smooth"), _ALL, 8),
    "sparsemax": Operator(_call("sparsemax", strength=False, amount=False), _topk, ("x",), 3),
    "soft_sort": Operator(_projection_call, _projected, ("x", "lam"), 2),
    "soft_rank": Operator(_projection_call, _projected, ("x", "lam"), 2),
    "project_permutahedron": Operator(_projection_call, _projected, ("x", "lam"), 2),
    "hard_topk_mask": Operator(_call("hard_topk_mask", strength=False), _hard(_topk), ("x",), 4),
    "hard_topk_mag": Operator(_call("hard_topk_mag", strength=False), _hard(_topk), ("x",), 3),
    "hard_topk_mag_tree": Operator(_tree_call("hard_topk_mag_tree"), _hard(_tree), ("x",), 2),
    "hard_topk_mask_tree": Operator(_tree_call("hard_topk_mask_tree"), _hard(_tree), ("x",), 2),
}
