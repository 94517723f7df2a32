"""The operators that are tried: how each is called, and which oracle answers for it."""

import dataclasses
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import ops
from ops.losses import Target
from scripts.fuzz.oracle import loss, projection, topk, value
from scripts.fuzz.oracle.equation import Curve
from scripts.fuzz.oracle.topk import Truth
from scripts.fuzz.setting import Rows, Setting

Call = Callable[..., Array]


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


def _plain(name: str, *options: str) -> Callable[[Setting], Call]:
    """A function of ``ops`` that takes ``k`` and ``lam``, with these options of the setting."""

    def of(setting: Setting) -> Call:
        chosen: dict[str, Any] = {option: getattr(setting, option) for option in options}

        def call(x: Array, k: Array, lam: Array, where: Array, extra: Array, axis: int) -> Array:
            present = where if setting.where else None
            return getattr(ops, name)(x, k, lam=lam, p=setting.p, axis=axis, where=present, **chosen)

        return call

    return of


def _hard_call(name: str) -> Callable[[Setting], Call]:
    def of(setting: Setting) -> Call:
        def call(x: Array, k: Array, lam: Array, where: Array, extra: Array, axis: int) -> Array:
            return getattr(ops, name)(x, k, axis=axis, where=where if setting.where else None)

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
        found = ops.soft_topk(x, k, num_slots=setting.n, lam=lam, p=setting.p, axis=axis, where=present)
        left = jnp.expand_dims(found.overflow, axis)  # exactly 0
        return jnp.put_along_axis(x, found.indices, found.weights + left, axis=axis, inplace=False)

    return call


def _tree_call(name: str) -> Callable[[Setting], Call]:
    """Of one row at a time, cut into three leaves."""

    def of(setting: Setting) -> Call:
        def call(x: Array, k: Array, lam: Array, where: Array, extra: Array, axis: int) -> Array:
            def one(x: Array, k: Array, lam: Array) -> Array:
                first, second = setting.n // 3, setting.n // 2
                leaves = {"a": x[:first], "b": x[None, first:second], "c": x[second:]}
                options: dict[str, Any] = {} if name.startswith("hard") else {"lam": lam, "p": setting.p}
                if name == "topk_mag_tree":
                    options |= {"density": k / setting.n, "debias": setting.debias}
                else:
                    options |= {"k": k}
                kept = getattr(ops, name)(leaves, **options)
                return jnp.concatenate([kept["a"], kept["b"][0], kept["c"]])

            return jax.vmap(one)(x, k, lam)

        return call

    return of


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
    "topk_mask": Operator(_plain("topk_mask", "solver"), _top_k, ("x", "k", "lam"), 26),
    "topk_mag": Operator(_plain("topk_mag", "solver", "debias"), _top_k, ("x", "k", "lam"), 26),
    "relaxed_topk": Operator(_plain("relaxed_topk", "solver", "phi"), _top_k, ("x", "k", "lam"), 12),
    "soft_topk": Operator(_slots_call, _top_k, ("x", "k", "lam"), 4),
    "topk_mag_tree": Operator(_tree_call("topk_mag_tree"), _top_k, ("x", "lam"), 4),
    "topk_mask_tree": Operator(_tree_call("topk_mask_tree"), _top_k, ("x", "k", "lam"), 3),
    "relaxed_topk_value": Operator(_plain("relaxed_topk_value", "phi"), _value, ("x", "k", "lam"), 6),
    "topk_fenchel_young_loss": Operator(_loss_call, _loss, ("x", "k", "lam"), 8),
    "topk_sum": Operator(_hard_call("topk_sum"), _sum, ("x",), 2),
    "sparsemax": Operator(_sparsemax_call, _sparsemax, ("x",), 3),
    "soft_sort": Operator(_projection_call, _projection, ("x", "lam"), 2),
    "soft_rank": Operator(_projection_call, _projection, ("x", "lam"), 2),
    "project_permutahedron": Operator(_projection_call, _projection, ("x", "lam"), 2),
    "hard_topk_mask": Operator(_hard_call("hard_topk_mask"), _hard, ("x",), 4),
    "hard_topk_mag_tree": Operator(_tree_call("hard_topk_mag_tree"), _hard, ("x",), 1),
    "hard_topk_mask_tree": Operator(_tree_call("hard_topk_mask_tree"), _hard, ("x",), 1),
    "hard_topk_mag": Operator(_hard_call("hard_topk_mag"), _hard, ("x",), 3),
}


def truth(setting: Setting, rows: Rows) -> Truth:
    """What the operator should return for these rows.

    Numbers too small to be normal may be taken for 0, as XLA takes them on most hardware.
    """
    expect, tiny = OPERATORS[setting.operator].expect, setting.precision.tiny
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
