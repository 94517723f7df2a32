"""One kernel for all rows of a batch under ``vmap``, and for a mesh whose devices each solve their own rows."""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_batching import custom_vmap
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jax.sharding import NamedSharding, PartitionSpec

from ...arithmetic import TwoFloat
from ..rows import Rows

ByRows = Callable[..., TwoFloat]  # takes rows (rows, n) and scalars (rows, 1), returns thresholds (rows, 1)


def over_batches(kernel: ByRows) -> ByRows:
    """Returns ``kernel`` with a batching rule: ``vmap`` adds the rows of the batch to those of the kernel."""

    @custom_vmap
    def solve(*arrays: Array) -> tuple[Array, ...]:
        return tuple(kernel(*arrays))

    @solve.def_vmap
    def of_batch(size: int, batched: list[bool], *arrays: Array) -> tuple[tuple[Array, ...], tuple[bool, ...]]:
        if not size:
            nothing = jnp.zeros((0, arrays[0].shape[-2], 1), arrays[0].dtype)
            return (nothing, nothing), (True, True)
        expanded = [
            array if has else jnp.broadcast_to(array, (size, *array.shape))
            for array, has in zip(arrays, batched, strict=True)
        ]
        thresholds = solve(*(array.reshape(-1, array.shape[-1]) for array in expanded))
        return tuple(value.reshape(size, -1, 1) for value in thresholds), (True, True)

    return lambda *arrays: TwoFloat(*solve(*arrays))


def over_devices(kernel: ByRows, loop: Callable[..., TwoFloat], scalars: int) -> ByRows:
    """Returns ``kernel`` for arrays that the compiler may divide over devices.

    Each device solves its own rows. If rows are themselves divided, ``loop`` solves them, and each pass communicates a
    few scalars, as its argument ``rows`` says. ``scalars`` is the number of scalars of each row.
    """

    @custom_partitioning
    def solve(*arrays: Array) -> tuple[Array, ...]:
        return tuple(kernel(*arrays))

    def partition(mesh: Any, arguments: Any, result: Any) -> tuple[Any, ...]:
        spec = arguments[0].sharding.spec
        rows, along = (*spec, None, None)[:2]
        scalar = NamedSharding(mesh, PartitionSpec(rows, None))
        solver = kernel if along is None else functools.partial(loop, rows=Rows(-1, along))
        places = (NamedSharding(mesh, PartitionSpec(rows, along)), *scalars * [scalar])

        def part(*arrays: Array) -> tuple[Array, ...]:
            with jax.sharding.use_abstract_mesh(no_mesh):  # arrays here are parts, which lie on no mesh
                return tuple(solver(*arrays))

        return mesh, part, (scalar, scalar), places

    no_mesh = jax.sharding.AbstractMesh((), ())
    operands = ", ".join(["r n", *(f"r a{number}" for number in range(scalars))])
    solve.def_partition(partition, sharding_rule=f"{operands} -> r b0, r b1")
    return lambda *arrays: TwoFloat(*solve(*arrays))


def by_kernel(kernels: Sequence[ByRows], loop: ByRows, *, divisible: bool) -> ByRows:
    """Returns the first of ``kernels`` that this JAX lowers for the device, or ``loop`` with a warning if none does.

    If the compiler cannot divide the kernel (not ``divisible``), a program for several devices uses ``loop`` too,
    except inside ``shard_map``, where each device has its own part. The choice is made when the program is lowered.
    """
    options = {"kernels": tuple(kernels), "loop": loop, "divisible": divisible}
    return lambda *arrays: TwoFloat(*_BY_KERNEL.bind(*arrays, **options))


_BY_KERNEL = Primitive("topk_by_kernel")
_BY_KERNEL.multiple_results = True
_WARNED_REASONS: list[str] = []  # why the loop is used; a warning tells users once


@_BY_KERNEL.def_impl
def _run_loop(*arrays: Array, loop: ByRows, **_: Any) -> list[Array]:
    return list(jax.jit(loop)(*arrays))


@_BY_KERNEL.def_abstract_eval
def _scalars(s: Any, *scalars: Any, **_: Any) -> list[Any]:
    return 2 * [s.update(shape=(s.shape[0], 1))]


def _lowered(
    context: mlir.LoweringRuleContext, *values: Any, kernels: tuple[ByRows, ...], loop: ByRows, divisible: bool
) -> Any:
    program: Any = context.module_context.axis_context
    if hasattr(program, "manual_axes"):
        local = set(program.manual_axes) == set(program.mesh.axis_names)
    else:
        local = getattr(program, "num_devices", None) == 1
    reason = "" if kernels else f"a row of {context.avals_in[0].shape[1]} is too long"  # type: ignore[attr-defined]
    for kernel in kernels if divisible or local else ():
        try:
            with warnings.catch_warnings():
                # Pallas deprecates Triton, which older chips need; users can do nothing about that.
                warnings.simplefilter("ignore", DeprecationWarning)
                return mlir.lower_fun(kernel)(context, *values)
        except Exception as error:  # Pallas may raise anything, and that differs between versions
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
    if reason and not _WARNED_REASONS:
        _WARNED_REASONS.append(reason)
        warnings.warn(f"top-k is solved by the loop, as jax {jax.__version__} takes no kernel: {reason}", stacklevel=2)
    return mlir.lower_fun(loop)(context, *values)


mlir.register_lowering(_BY_KERNEL, _lowered)
