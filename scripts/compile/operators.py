"""Every public operator with its gradient as a program to be compiled, for one device, in float32."""

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import ops
from experiments.core.errors import first_line
from experiments.core.record.chips import Slice
from scripts.compile import compiled

_LAM = 0.1
# Rows, entries and k: many short rows, and a long one.
SHORT, LONG = (128, 1000, 100), (1, 1_000_000, 100_000)
# Sort and pool the entries, which takes XLA minutes to compile for a TPU at a million.
_SHORT_ALONE = frozenset(
    (
        "owl_norm",
        "project_permutahedron",
        "soft_sort",
        "soft_rank",
        "soft_quantile",
        "isotonic_regression",
        "prefix_topk_threshold",
    )
)


def _descending(x: Any) -> Any:
    return jnp.linspace(1, 0, x.shape[-1], dtype=x.dtype)


def _named(call: Callable[[Any, Any, int], Any], *operators: Any) -> dict[str, Callable[[Any, int, Any], Any]]:
    """Operators by name that are called in the same way: `call(operator, x, k)`."""
    return {
        operator.__name__: functools.partial(lambda operator, x, k, labels: call(operator, x, k), operator)
        for operator in operators
    }


# Take x [rows, n], k and labels [rows], and are differentiated in x.
CALLS: dict[str, Callable[[Any, int, Any], Any]] = {
    **_named(lambda f, x, k: f(x, k, lam=_LAM), ops.topk_mask, ops.topk_mag, ops.knapsack_mask, ops.relaxed_topk_value),
    **_named(lambda f, x, k: f(x, k), ops.hard_topk_mask, ops.hard_topk_mag),
    "lax.top_k": lambda x, k, labels: jax.lax.top_k(x, k)[0],
    "topk_mask p=4/3": lambda x, k, labels: ops.topk_mask(x, k, lam=_LAM, p=4 / 3),
    "topk_mag p=4/3": lambda x, k, labels: ops.topk_mag(x, k, lam=_LAM, p=4 / 3),
    "relaxed_topk": lambda x, k, labels: ops.relaxed_topk(x, k, lam=_LAM, phi="exp"),
    "topk_fenchel_young_loss": lambda x, k, labels: ops.topk_fenchel_young_loss(x, labels, k, lam=_LAM),
    "topk_fenchel_young_mixture": lambda x, k, labels: ops.topk_fenchel_young_mixture(
        x, labels, np.asarray([0.5, 0.25, 0.25], np.float32), lam=_LAM
    ),
    "topk_surrogate_loss": lambda x, k, labels: ops.topk_surrogate_loss(x, labels, k, lam=_LAM),
    "topk_accuracy": lambda x, k, labels: ops.topk_accuracy(x, labels, range(1, 11)),
    **_named(
        lambda f, x, k: f({"whole": x, "first": x[0]}, density=0.1, lam=_LAM), ops.topk_mag_tree, ops.topk_mask_tree
    ),
    "soft_topk": lambda x, k, labels: ops.soft_topk(x, k, lam=_LAM, num_slots=min(2 * k, x.shape[1])).weights,
    "gather_slots": lambda x, k, labels: jax.vmap(ops.gather_slots)(x[:, :, None], labels[:, None]),
    "scatter_slots": lambda x, k, labels: jax.vmap(ops.scatter_slots, (0, 0, 0, None))(
        x[:, :1, None], labels[:, None], x[:, 1:2], x.shape[1]
    ),
    "topk_plan": lambda x, k, labels: ops.topk_plan(x[None], k, 0.5 * x.shape[0], lam=_LAM).plan[0],
    "topk_threshold": lambda x, k, labels: ops.topk_threshold(x, k, lam=_LAM)(x),
    "prefix_topk_threshold": lambda x, k, labels: ops.prefix_topk_threshold(x, k, lam=_LAM).entry(x),
    "lam_of_support": lambda x, k, labels: ops.lam_of_support(x, k, 2 * k),
    "straight_through": lambda x, k, labels: ops.straight_through(
        ops.hard_topk_mask(x, k), ops.topk_mask(x, k, lam=_LAM)
    ),
    **_named(lambda f, x, k: f(x, k), ops.topk_conjugate, ops.k_support_norm),
    **_named(lambda f, x, k: f(x), ops.sparsemax, ops.soft_sort, ops.soft_rank),
    **_named(lambda f, x, k: f(x, _descending(x)), ops.owl_norm, ops.project_permutahedron, ops.isotonic_regression),
    "soft_quantile": lambda x, k, labels: ops.soft_quantile(x, 0.3),
}


def cases() -> Iterator[tuple[str, tuple[int, int, int]]]:
    """Yields operators and the sizes that they are compiled for."""
    return ((name, size) for name in CALLS for size in ((SHORT,) if name in _SHORT_ALONE else (SHORT, LONG)))


def lower(name: str, size: tuple[int, int, int], device: Any) -> jax.stages.Lowered:
    """Lowers the program of an operator for a device: the sum of its squares, and the gradient of that."""
    rows, n, k = size
    mesh = jax.sharding.Mesh(np.asarray([device]), ("device",), axis_types=(AxisType.Auto,))

    def squares(x: Any, labels: Any) -> Any:
        return sum(jnp.sum(jnp.square(leaf.astype(x.dtype))) for leaf in jax.tree.leaves(CALLS[name](x, k, labels)))

    shapes = jax.ShapeDtypeStruct((rows, n), np.float32), jax.ShapeDtypeStruct((rows,), np.int32)
    # Outside of the mesh: what an operator computes of its options alone, once and for all, it may compute on the CPU.
    jax.eval_shape(squares, *shapes)
    with jax.set_mesh(mesh):
        there = (shape.update(sharding=NamedSharding(mesh, PartitionSpec())) for shape in shapes)
        return jax.jit(jax.value_and_grad(squares)).lower(*there)


def compile_(name: str, size: tuple[int, int, int], slice_: Slice, device: Any) -> dict[str, Any]:
    """Compiles an operator: its `compiled.outcome`, or `error`; and `warnings`, as where no kernel can be made."""
    result: dict[str, Any] = {"program": f"{name} ({size[0]}, {size[1]})"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result |= compiled.outcome(lower(name, size, device), slice_)
        except Exception as error:  # whatever an operator does that such a device cannot, and the compiler's refusals
            result["error"] = f"{type(error).__name__}: {first_line(error)}"
    return result | {"warnings": [str(warning.message) for warning in caught]}
