"""What goes in comes out, computed in float32 at least."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops import hard_topk_mag, hard_topk_mask, topk_mag, topk_mask
from tests.ops import oracles
from tests.ops.operators import CALLS, ROWS, N

OPERATORS = [topk_mask, topk_mag, hard_topk_mask, hard_topk_mag]
X = oracles.samples((20, 40), dtype=np.float32)


@pytest.mark.parametrize(
    ("operator", "dtype"),
    [*((f, jnp.bfloat16) for f in OPERATORS), (topk_mask, jnp.float16)],
)
def test_narrow_floats_are_float32_rounded(operator, dtype):
    x = X.astype(dtype)
    y = operator(x, 7)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, np.asarray(operator(x.astype(np.float32), 7)).astype(dtype))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_wide_floats_stay(x64, dtype):
    y = topk_mask(X.astype(dtype), 7, lam=0.5)
    assert y.dtype == dtype
    error = np.abs(np.asarray(y) - oracles.by_rows(oracles.pooled, X, 7, 0.5)).max()
    assert error < (1e-5 if dtype == jnp.float32 else 1e-13)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint8, bool])
@pytest.mark.parametrize("operator", [topk_mask, hard_topk_mag])
def test_integers_become_floats(operator, dtype):
    x = (10 * X).astype(dtype)
    y = operator(x, 7)
    assert y.dtype == jnp.float32
    np.testing.assert_array_equal(y, operator(x.astype(np.float32), 7))


def test_integers_become_float64_with_x64(x64):
    assert jax.eval_shape(lambda: topk_mask(np.arange(40), 7)).dtype == jnp.float64


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("p", [4 / 3, 2.0])
def test_far_from_zero_in_narrow_floats(dtype, p):
    x = (-1000 + 4 * X).astype(dtype)
    y = np.asarray(topk_mask(x, 5, lam=0.5, p=p), np.float64)
    # Each of the selected entries is rounded on its own.
    np.testing.assert_allclose(y.sum(-1), 5, rtol=float(jnp.finfo(dtype).eps))


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_gradients_keep_the_dtype(dtype):
    slope = jax.jit(jax.grad(lambda x: jnp.sum(topk_mask(x, 7, lam=1.0).astype(jnp.float32) ** 2)))
    gradient = np.asarray(slope(X.astype(dtype)))
    assert gradient.dtype == dtype
    assert np.isfinite(gradient).all()
    assert np.any(gradient != 0)


@pytest.mark.parametrize(("n", "p"), [(1_000_000, 4 / 3), (1_000_000, 2.0), (10_000_000, 2.0)])
def test_sum_is_k_in_float32_for_long_vectors(n, p):
    x = np.random.default_rng(0).standard_normal(n, np.float32)
    k = n // 10
    y = np.asarray(topk_mask(x, k, lam=0.1, p=p), np.float64)
    assert np.any((y > 0) & (y < 1))
    assert abs(y.sum() - k) <= 1e-6 * k


def test_complex_numbers_are_refused():
    with pytest.raises(ValueError, match=r"x must be real.*complex64"):
        topk_mask(jnp.ones(3, jnp.complex64), 1)


FLOATS = {False: ["bfloat16", "float16", "float32"], True: ["bfloat16", "float32", "float64"]}
INTEGERS = {False: ["int8", "bool"], True: ["int32", "int64"]}
# Of what these return, other floats than the dtype of the entries: `lam`, residuals, bounds, norms of float32 at least.
WIDER = ("topk_plan", "topk_solution", "isotonic_regression", "lam_of_support", "curvature_bound", "gates")


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("wide", [False, True])
def test_every_operator_keeps_every_dtype_with_and_without_x64(name, wide):
    call = CALLS[name]
    entries = {key for key, value in call.arrays.items() if value.shape == (ROWS, N) and value.dtype == np.float32}
    with jax.enable_x64(wide):
        default = "float64" if wide else "float32"
        # Integers are no parameters to prune.
        for dtype in [*FLOATS[wide], *INTEGERS[wide] * ("tree" not in name)]:
            arrays = {key: value.astype(dtype) if key in entries else value for key, value in call.arrays.items()}
            floats = {leaf.dtype.name for leaf in jax.tree.leaves(jax.eval_shape(call, arrays)) if leaf.dtype != bool}
            expected = {dtype if dtype in FLOATS[wide] else default} if entries else {default}
            wider = {"float32", "float64"} if name in WIDER else set()
            assert {one for one in floats if "float" in one} <= expected | wider, dtype


@pytest.mark.parametrize("name", ["k_support_negentropy", "topk_conjugate"])
def test_the_entropy_of_float32_with_x64(name, x64):
    options = {"phi": "exp"} if name == "topk_conjugate" else {}
    y = np.float32([0.5, 0.25, 0.25, 0.0])
    found = jax.jit(jax.value_and_grad(lambda y: CALLS[name](k=2, y=y, **options)))(y)
    np.testing.assert_allclose(found[0], np.log(0.5), rtol=1e-6)
    assert found[0].dtype == found[1].dtype == jnp.float32


def test_the_equation_leaks_no_tracer():
    call = CALLS["relaxed_topk with p < 2"]
    floats = {key: value for key, value in call.arrays.items() if value.dtype == np.float32}

    def total(floats):
        found = call(call.arrays | floats)
        return sum((jnp.sum(leaf.astype(jnp.float32)) for leaf in jax.tree.leaves(found)), jnp.float32(0)), found

    with jax.checking_leaks():
        jax.jit(jax.value_and_grad(total, has_aux=True)).trace(floats)
