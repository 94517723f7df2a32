"""Every public operator as a program to be compiled: values, or values and gradients, at the shapes that matter."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import ops

DTYPES = ("float32", "bfloat16")
VALUE, GRADIENT = "value", "value and gradient"
MODES = (GRADIENT, VALUE)
ONE, ROWS, ENTRIES = "", "rows", "entries"  # whole on one device; rows, or the entries of each, divided over eight
PARTS = 8
_LAM = 0.1


@dataclasses.dataclass(frozen=True)
class Size:
    """Rows of entries, and how many of each are selected."""

    rows: int
    n: int
    k: int


SIZES = (
    Size(12_800, 400, 28),
    Size(128, 1000, 100),
    Size(4096, 8192, 819),
    Size(1, 25_088, 2508),
    Size(1, 1_000_000, 100_000),
    Size(1, 10_000_000, 1_000_000),
)

# Of x [rows, n], k and labels [rows]; what is differentiated in x.
_Call = Callable[[Any, int, Any], Any]
CALLS: dict[str, _Call] = {
    "topk_mask": lambda x, k, labels: ops.topk_mask(x, k, lam=_LAM),
    "topk_mag": lambda x, k, labels: ops.topk_mag(x, k, lam=_LAM),
    "hard_topk_mask": lambda x, k, labels: ops.hard_topk_mask(x, k),
    "hard_topk_mag": lambda x, k, labels: ops.hard_topk_mag(x, k),
    "lax.top_k": lambda x, k, labels: jax.lax.top_k(x, k)[0],
    "topk_mask p=4/3": lambda x, k, labels: ops.topk_mask(x, k, lam=_LAM, p=4 / 3),
    "topk_mag p=4/3": lambda x, k, labels: ops.topk_mag(x, k, lam=_LAM, p=4 / 3),
    "topk_fenchel_young_loss": lambda x, k, labels: ops.topk_fenchel_young_loss(x, labels, k, lam=_LAM),
    "topk_fenchel_young_mixture": lambda x, k, labels: ops.topk_fenchel_young_mixture(
        x, labels, np.asarray([0.5, 0.25, 0.25], np.float32), lam=_LAM
    ),
    "topk_surrogate_loss": lambda x, k, labels: ops.topk_surrogate_loss(x, labels, k, lam=_LAM),
    "topk_accuracy": lambda x, k, labels: ops.topk_accuracy(x, labels, 10),
    "topk_mag_tree": lambda x, k, labels: ops.topk_mag_tree({"whole": x, "first": x[0]}, 0.1, lam=_LAM),
    "topk_mask_tree": lambda x, k, labels: ops.topk_mask_tree({"whole": x, "first": x[0]}, 0.1, lam=_LAM),
    "hard_topk_mag_tree": lambda x, k, labels: ops.hard_topk_mag_tree({"whole": x, "first": x[0]}, 0.1),
    "hard_topk_mask_tree": lambda x, k, labels: ops.hard_topk_mask_tree({"whole": x, "first": x[0]}, 0.1),
    "knapsack_mask": lambda x, k, labels: ops.knapsack_mask(x, k, lam=_LAM),
    "soft_topk": lambda x, k, labels: ops.soft_topk(x, k, lam=_LAM, num_slots=min(2 * k, x.shape[1])).weights,
    "gather_slots": lambda x, k, labels: jax.vmap(ops.gather_slots)(x[:, :, None], labels[:, None]),
    "scatter_slots": lambda x, k, labels: jax.vmap(ops.scatter_slots, (0, 0, 0, None))(
        x[:, :1, None], labels[:, None], x[:, 1:2], x.shape[1]
    ),
    "topk_plan": lambda x, k, labels: ops.topk_plan(x[None], k, 0.5 * x.shape[0], lam=_LAM).plan[0],
    "sparsemax": lambda x, k, labels: ops.sparsemax(x),
    "relaxed_topk": lambda x, k, labels: ops.relaxed_topk(x, k, lam=_LAM, phi="exp"),
    "relaxed_topk_value": lambda x, k, labels: ops.relaxed_topk_value(x, k, lam=_LAM),
    "topk_sum": lambda x, k, labels: ops.topk_sum(x, k),
    "lam_of_support": lambda x, k, labels: ops.lam_of_support(x, k, 2 * k),
    "straight_through": lambda x, k, labels: ops.straight_through(
        ops.hard_topk_mask(x, k), ops.topk_mask(x, k, lam=_LAM)
    ),
    "topk_conjugate": lambda x, k, labels: ops.topk_conjugate(x, k),
    "k_support_norm": lambda x, k, labels: ops.k_support_norm(x, k),
    "k_support_negentropy": lambda x, k, labels: ops.k_support_negentropy(x * x, k),
    "owl_norm": lambda x, k, labels: ops.owl_norm(x, jnp.linspace(1, 0, x.shape[-1], dtype=x.dtype)),
    "lmo": lambda x, k, labels: ops.lmo(x, jnp.linspace(1, 0, x.shape[-1], dtype=x.dtype)),
    "project_permutahedron": lambda x, k, labels: ops.project_permutahedron(
        x, jnp.linspace(1, 0, x.shape[-1], dtype=x.dtype)
    ),
    "soft_sort": lambda x, k, labels: ops.soft_sort(x),
    "soft_rank": lambda x, k, labels: ops.soft_rank(x),
    "soft_quantile": lambda x, k, labels: ops.soft_quantile(x, 0.3),
    "isotonic_regression": lambda x, k, labels: ops.isotonic_regression(
        x, jnp.linspace(1, 0, x.shape[-1], dtype=x.dtype)
    ),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A program.

    Attributes:
      operator: of CALLS.
      size: of what it is called with.
      dtype: of the same.
      mode: of MODES.
      divided: ONE, ROWS or ENTRIES.
    """

    operator: str
    size: Size
    dtype: str
    mode: str
    divided: str

    @property
    def key(self) -> str:
        """Tells it from the others."""
        where = f", {self.divided} over {PARTS}" if self.divided else ""
        return f"{self.operator} {self.dtype} ({self.size.rows}, {self.size.n}) {self.mode}{where}"


def cases(names: Sequence[str] = tuple(CALLS), sizes: Sequence[Size] = SIZES) -> list[Case]:
    """All of them, those first that say most: of all operators, the gradients in float32."""
    found = [
        Case(name, size, dtype, mode, divided)
        for dtype in DTYPES
        for is_divided in (False, True)
        for mode in MODES
        for name in names
        for size in sizes
        for divided in ([ROWS if size.rows % PARTS == 0 else ENTRIES] if is_divided else [ONE])
    ]
    # A gradient contains the value, whose counts are of interest by themselves on one device.
    return [case for case in found if case.mode == GRADIENT or not case.divided]


def lower(case: Case, devices: Sequence[Any]) -> jax.stages.Lowered:
    """The program of a case, for the first of these devices, or eight of them."""
    count = PARTS if case.divided else 1
    mesh = jax.sharding.Mesh(np.asarray(devices[:count]), ("parts",), axis_types=(AxisType.Auto,))
    spec = {ONE: PartitionSpec(), ROWS: PartitionSpec("parts"), ENTRIES: PartitionSpec(None, "parts")}[case.divided]
    size = case.size
    x = jax.ShapeDtypeStruct((size.rows, size.n), jnp.dtype(case.dtype), sharding=NamedSharding(mesh, spec))
    by_row = PartitionSpec("parts") if case.divided == ROWS else PartitionSpec()
    labels = jax.ShapeDtypeStruct((size.rows,), jnp.dtype(np.int32), sharding=NamedSharding(mesh, by_row))
    call = CALLS[case.operator]

    def value(x: Any, labels: Any) -> Any:
        return call(x, size.k, labels)

    def value_and_gradient(x: Any, labels: Any, cotangent: Any) -> Any:
        y, back = jax.vjp(lambda x: value(x, labels), x)
        return y, back(cotangent)[0]

    # Outside of the mesh: what an operator computes of its options alone, once and for all, it may compute on the CPU.
    like = jax.eval_shape(
        value, jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct(labels.shape, labels.dtype)
    )
    with jax.set_mesh(mesh):
        if case.mode == VALUE:
            return jax.jit(value).lower(x, labels)
        cotangent = jax.tree.map(lambda leaf: _cotangent(leaf, x, labels), like)
        return jax.jit(value_and_gradient).lower(x, labels, cotangent)


def _cotangent(leaf: Any, x: Any, labels: Any) -> Any:
    """Of a result, lying where the argument of its shape does."""
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.float0)
    sharding = next((one.sharding for one in (x, labels) if one.shape == leaf.shape), None)
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def differentiable(case: Case) -> bool:
    """Whether its mode applies."""
    return case.mode == VALUE or case.operator != "topk_accuracy"


def every(names: Sequence[str], sizes: Sequence[Size]) -> Iterator[Case]:
    """Of `cases`, those that apply."""
    return filter(differentiable, cases(names, sizes))
