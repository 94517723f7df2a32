"""The loops of a CPU: what XLA makes fast, and where they are taken."""

import types

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ops.scalar.rootfinding import End, Evaluation, find_root
from ops.scalar.rows import Rows, VectorRows, vector_rows


def parts(s: Array) -> tuple[Array, Array, Array]:
    """A count between two floats."""
    return jnp.maximum(s, 0.0), s > 0.5, jnp.square(s)


def entries(n: int, dtype: str = "float32", rows: int = 3) -> Array:
    return jax.random.normal(jax.random.key(n), (rows, n), dtype)


def test_prime_length_agrees_with_rows():
    s = -1 - jnp.abs(entries(4099))

    @jax.jit
    def both(s: Array) -> list[tuple[Array, ...]]:
        return [(*rows.sum(parts, (s,)), *rows.extent((s,), -2.0, signed=True)) for rows in (VectorRows(), Rows())]

    found, expected = both(s)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_counts_stay_exact_past_float32():
    s = jnp.ones((1, 2**24 + 1))
    count = jax.jit(lambda s: VectorRows(keys=jnp.negative).sum(lambda s: s < 0, (s,)))(s)
    assert int(count[0, 0]) == 2**24 + 1


def test_each_loop_has_one_float_at_most():
    """Two floats in one loop, or a value alone, are what XLA makes slow."""
    for function in (parts, jnp.abs, lambda s: s > 0):
        traced = jax.make_jaxpr(lambda s: VectorRows().sum(function, (s,)))(entries(400))  # noqa: B023
        loops = [equation for equation in traced.jaxpr.eqns if equation.primitive.name.startswith("reduce")]
        for loop in loops:
            kinds = [one.aval.dtype for one in loop.invars if one.aval.ndim]
            assert len(kinds) > 1
            assert sum(jnp.issubdtype(kind, jnp.floating) for kind in kinds) <= 1
        assert len(loops) == max(1, function is parts and 2)


def test_vector_rows_are_for_cpus(monkeypatch):
    assert vector_rows(Rows(None, "d")) == VectorRows(None, "d")
    cpu, tpu = jax.devices("cpu"), types.SimpleNamespace(platform="tpu", device_kind="TPU v5 lite")
    monkeypatch.setattr(jax, "devices", lambda platform=None: cpu if platform == "cpu" else [tpu])
    assert vector_rows(Rows()) is None
    with jax.default_device("cpu"):
        assert vector_rows(Rows()) == VectorRows()


def test_kernels_use_no_cpu_loops():
    """Where a kernel is divided among devices that are not there, it is traced as if for the CPU at hand."""

    def found_by(rows):
        def evaluate(gamma):
            zero = gamma.hi - gamma.hi
            return Evaluation(-gamma.hi, -gamma.hi, -gamma.hi, zero == 0, zero == 1, zero + 1)

        return lambda s: find_root(evaluate, s, End(-1.0, 1.0), End(1.0, -1.0), rows=rows).point.hi

    start = jnp.full((2, 1), 0.5)
    assert " reduce[" in str(jax.make_jaxpr(found_by(None))(start))
    assert " reduce[" not in str(jax.make_jaxpr(found_by(Rows()))(start))
