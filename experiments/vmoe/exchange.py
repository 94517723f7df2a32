"""The layout of groups and slots on the current mesh (`jax.set_mesh`), and the exchange of slots between devices.

Groups are divided along all axes. The operators loop over blocks of rows, for which the compiler would gather the
scores of all groups on every device; `by_group` keeps the work on a group local. The exchange is an all-to-all along
the axis `expert`: a device sends each other one the slots of its experts, and receives those for its own. If `fsdp`
divides the experts' parameters, they are gathered for use, and the slots are not.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax import Array
from jax.sharding import PartitionSpec, get_abstract_mesh

from experiments.core.training.mesh import AXES

Function = TypeVar("Function", bound=Callable)

_BY_GROUP = PartitionSpec(AXES)
_BY_EXPERT = PartitionSpec(tuple(axis for axis in AXES if axis != "expert"), "expert")


def by_group(function: Function) -> Function:
    """Makes each device compute `function` for its own groups; arrays in and out have the leading axis G."""
    return _mapped(function, _BY_GROUP, _BY_GROUP)


def to_experts(slots: Array) -> Array:
    """Slots [G, E, C, D] divided along G to the same divided along E by `expert` and along G by the other axes."""
    exchange = lambda slots: jax.lax.all_to_all(slots, "expert", 1, 0, tiled=True)  # noqa: E731
    return _mapped(exchange, _BY_GROUP, _BY_EXPERT)(slots) if _axis_size("expert") > 1 else slots


def to_groups(outputs: Array) -> Array:
    """Outputs [G, E, C, D] divided as `to_experts` returns them, to the same divided along G."""
    exchange = lambda outputs: jax.lax.all_to_all(outputs, "expert", 0, 1, tiled=True)  # noqa: E731
    return _mapped(exchange, _BY_EXPERT, _BY_GROUP)(outputs) if _axis_size("expert") > 1 else outputs


def gather_over_fsdp(params: Any) -> Any:
    """Gathers parameters of experts, with the leading axis E, over `fsdp`; `expert` still divides them."""
    if _axis_size("fsdp") == 1:
        return params
    return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, PartitionSpec("expert")), params)


def _axis_size(axis: str) -> int:
    return dict(get_abstract_mesh().shape).get(axis, 1)


def _mapped(function: Function, inputs: PartitionSpec, outputs: PartitionSpec) -> Function:
    mesh = get_abstract_mesh()
    if mesh.empty or mesh.size == 1:
        return function
    return jax.shard_map(function, in_specs=inputs, out_specs=outputs)
