"""The loops of a CPU against sums and extremes taken one by one."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import AxisType, PartitionSpec

from ops.scalar.rootfinding import End, Evaluation, find_root
from ops.scalar.rows import Rows, VectorRows, in_one_loop, vector_rows


def parts(s: Array) -> tuple[Array, Array, Array]:
    """A count between two floats."""
    return jnp.maximum(s, 0.0), s > 0.5, jnp.square(s)


def entries(n: int, dtype: str = "float32", rows: int = 3) -> Array:
    return jax.random.normal(jax.random.key(n), (rows, n), dtype)


@pytest.mark.parametrize("axis", [-1, None])
def test_sums_of_several_arrays_are_those_of_rows(axis):
    """In one piece, in pieces that leave no rest, and of a length that nothing divides."""
    arrays = (entries(6), entries(25088), entries(4099))
    if axis is None:
        arrays = (entries(6).reshape(2, 3, 3), entries(5000, rows=1)[0], jnp.float32(0.75))
    sums = jax.jit(lambda arrays: [rows.sum(parts, arrays) for rows in (VectorRows(axis), Rows(axis))])
    found, expected = sums(arrays)
    assert jax.tree.map(jnp.shape, found) == jax.tree.map(jnp.shape, expected)
    assert found[1].dtype == jnp.int32
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, expected)


def test_counts_stay_exact_where_floats_are_not():
    s = jnp.ones((1, 2**24 + 1))
    count = jax.jit(lambda s: VectorRows(keys=jnp.negative).sum(lambda s: s < 0, (s,)))(s)
    assert int(count[0, 0]) == 2**24 + 1


@pytest.mark.parametrize(("axis", "signed", "dtype"), [(-1, True, "float32"), (None, False, "float64")])
def test_extent_is_that_of_rows(axis, signed, dtype):
    with jax.enable_x64(dtype == "float64"):
        s = entries(5000, dtype, rows=4)
        s = s.at[0, :4].set(jnp.array([-jnp.inf, jnp.inf, 0.0, -0.0], dtype)).at[1].set(-jnp.inf).at[2].set(-1e-30)
        s = s if signed else jnp.abs(s)
        cases = [(s,), (s[:, :7], s[:, 7:]), (s[1:2], s[1:2])]
        extents = jax.jit(
            lambda cases, rows: [rows.extent(case, 0.5, signed=signed) for case in cases], static_argnums=1
        )
        found, expected = (jax.tree.leaves(extents(cases, rows)) for rows in (VectorRows(axis), Rows(axis)))
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


def test_rows_divided_over_devices_are_reduced_over_all():
    mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])
    s = entries(8192)

    def reduced(s: Array) -> tuple[Array, ...]:
        rows = VectorRows(-1, "d")
        return *rows.sum(parts, (s,)), *rows.extent((s,), 0.0, signed=True)

    found = jax.jit(jax.shard_map(reduced, mesh=mesh, in_specs=PartitionSpec(None, "d"), out_specs=PartitionSpec()))(s)
    for one, other in zip(found, (*Rows().sum(parts, (s,)), *Rows().extent((s,), 0.0, signed=True)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_every_float_has_a_loop_of_its_own_with_a_count_beside_it():
    """Two floats in one loop, or a value alone, are what XLA makes slow."""
    for function in (parts, jnp.abs, lambda s: s > 0):
        traced = jax.make_jaxpr(lambda s: VectorRows().sum(function, (s,)))(entries(400))  # noqa: B023
        loops = [equation for equation in traced.jaxpr.eqns if equation.primitive.name.startswith("reduce")]
        for loop in loops:
            kinds = [one.aval.dtype for one in loop.invars if one.aval.ndim]
            assert len(kinds) > 1
            assert sum(jnp.issubdtype(kind, jnp.floating) for kind in kinds) <= 1
        assert len(loops) == max(1, function is parts and 2)


def test_loops_are_taken_where_a_cpu_is_likely(monkeypatch):
    assert vector_rows(Rows(None, "d")) == VectorRows(None, "d")
    cpu, tpu = jax.devices("cpu"), types.SimpleNamespace(platform="tpu", device_kind="TPU v5 lite")
    monkeypatch.setattr(jax, "devices", lambda platform=None: cpu if platform == "cpu" else [tpu])
    assert vector_rows(Rows()) is None
    with jax.default_device("cpu"):
        assert vector_rows(Rows()) == VectorRows()


def test_values_that_are_computed_in_one_loop_are_the_same():
    floats = jnp.array([[0.0], [-0.0], [jnp.inf], [-jnp.inf], [jnp.nan], [2e-38]], jnp.float32)
    integers = jnp.array([[0], [-(2**31)], [2**31 - 1], [1], [2], [3]], jnp.int32)
    found, counts = jax.jit(in_one_loop)((floats, integers))
    np.testing.assert_array_equal(found, floats)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(floats))
    np.testing.assert_array_equal(counts, integers)


def test_what_kernels_are_made_of_is_no_loop_of_a_cpu():
    """Where a kernel is divided among devices that are not there, it is traced as if for the CPU at hand."""

    def found_by(rows):
        def evaluate(gamma):
            zero = gamma.hi - gamma.hi
            return Evaluation(-gamma.hi, -gamma.hi, -gamma.hi, zero == 0, zero == 1, zero + 1)

        return lambda s: find_root(evaluate, s, End(-1.0, 1.0), End(1.0, -1.0), rows=rows).point.hi

    start = jnp.full((2, 1), 0.5)
    assert " reduce[" in str(jax.make_jaxpr(found_by(None))(start))
    assert " reduce[" not in str(jax.make_jaxpr(found_by(Rows()))(start))
