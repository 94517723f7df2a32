"""Compilations are few, memory is linear, and what is exported serves any batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from ops import hard_topk_mask, topk_mag, topk_mask, topk_plan, topk_threshold
from tests.ops import oracles
from tests.ops.operators import CALLS, ROWS

X = oracles.samples((6, 12), dtype=np.float32)
W = np.linspace(-1, 1, 12, dtype=np.float32)[None]


def test_one_compilation_for_all_k_and_lam(caplog):
    x = oracles.samples((3, 29), dtype=np.float32)  # a shape of its own, not compiled before
    ks = [3, 4.5, np.int64(5), np.float32(6), jnp.float32(7), jnp.int32(2), np.array([1, 2, 3]), jnp.array([1.0, 2, 3])]
    lams = [1, 0.25, np.float64(0.5), np.float32(2), jnp.float32(3), np.array([1.0, 2, 3])]
    calls = [lambda k=k: topk_mask(x, k, lam=1) for k in ks] + [
        lambda lam=lam: topk_mask(x, 3, lam=lam) for lam in lams
    ]
    assert oracles.compilations(caplog, calls[:1]) == 1
    assert oracles.compilations(caplog, calls[1:]) == 0
    ks = (1, 2, np.int32(3), np.array([1, 2, 3]))
    assert oracles.compilations(caplog, [lambda k=k: hard_topk_mask(x, k) for k in ks]) == 1


@pytest.mark.parametrize(("operator", "p"), [(topk_mag, 4 / 3), (hard_topk_mask, None)])
def test_memory_is_linear_and_no_callback(operator, p):
    n = 50
    x = np.ones((2, n), np.float32)
    options = {} if operator is hard_topk_mask else {"p": p}

    def loss(x, weights):
        return jnp.sum(weights * operator(x, 5, **options))

    def hessian_product(x, v):
        return jax.jvp(lambda x: jax.grad(loss)(x, x), (x,), (v,))[1]

    for function in (loss, jax.grad(loss), hessian_product):
        found = list(oracles.equations(jax.make_jaxpr(function)(x, x)))
        assert len(found) > 100  # the walk does reach the inside
        assert max(v.aval.size for e in found for v in e.outvars) <= 2 * n
        # A loop of a CPU sorts two numbers, its condition among them, to be given all cores.
        names = {e.primitive.name for e in found if e.primitive.name != "sort" or e.invars[0].aval.size > 2}
        assert not [name for name in names if "callback" in name or "sort" in name or "top_k" in name]


# One of each machinery. A plan, pytrees and a dictionary have no batch, and the chunks of NeuralSort depend on it.
EXPORTED = ("topk_mag", "knapsack_mask", "soft_topk", "topk_solution", "lam_of_support", "topk_accuracy", "sparse_code")


@pytest.mark.parametrize("name", EXPORTED)
def test_export_with_a_symbolic_batch(name):
    (batch,) = export.symbolic_shape("b")
    call = CALLS[name]
    arguments = {
        key: jax.ShapeDtypeStruct((batch, *value.shape[1:]) if value.shape[:1] == (ROWS,) else value.shape, value.dtype)
        for key, value in call.arrays.items()
    }
    exported = export.export(jax.jit(lambda arguments: call(arguments)))(arguments)
    assert not call.by_rows or all(result.shape[0] == batch for result in exported.out_avals)
    restored = export.deserialize(exported.serialize())
    assert restored.out_tree == exported.out_tree


def test_exported_program_agrees_with_oracle():
    def total(x):
        y = topk_mask(x, 2, lam=1.0)
        return jnp.sum(W * y), y

    shape = export.symbolic_shape("b, 12")
    exported = export.export(jax.jit(jax.grad(total, has_aux=True)))(jax.ShapeDtypeStruct(shape, jnp.float32))
    slope, y = export.deserialize(exported.serialize()).call(X)
    expected = oracles.differentiated(X, 2, 1.0, cotangent=np.tile(W, (6, 1)))
    np.testing.assert_allclose(y, expected["value"], atol=1e-6)
    np.testing.assert_allclose(slope, expected["x"], atol=1e-5)


@pytest.mark.parametrize("function", [lambda x: topk_plan(x, 1, 5), lambda x: topk_threshold(x, 2, axis=None)])
def test_export_keeps_the_output_structure(function):
    exported = export.export(jax.jit(function))(jax.ShapeDtypeStruct((5, 4), jnp.float32))
    restored = export.deserialize(exported.serialize())
    assert restored.out_tree == jax.tree.structure(jax.eval_shape(function, X[:5, :4]))


def test_symbolic_row_length_is_refused():
    x = jax.ShapeDtypeStruct(export.symbolic_shape("b, n"), jnp.float32)
    with pytest.raises(ValueError, match="x must have a known number of competing entries, got n"):
        export.export(jax.jit(lambda x: topk_mask(x, 2)))(x)
