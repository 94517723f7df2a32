"""Results have the dtype of the input, computed in float32 at least."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ops
from ops import baselines, isotonic, topk_mask
from ops.baselines import coding, gates
from tests.ops import oracles
from tests.ops.operators import CALLS, ROWS, WIDER, N
from tests.ops.test_meshes import TRIED

X = oracles.samples((20, 40), dtype=np.float32)


def test_whole_numbers_become_floats():
    x = (10 * X).astype(np.uint8)
    y = topk_mask(x, 7)
    assert y.dtype == topk_mask(x.astype(bool), 7).dtype == np.float32
    np.testing.assert_allclose(y, oracles.by_rows(oracles.pooled, x.astype(np.float64), 7, 0.1), atol=1e-6)


def test_long_vectors_sum_to_k_in_float32():
    k = 1_000_000
    x = np.random.default_rng(0).standard_normal(10 * k, np.float32)
    y = np.asarray(topk_mask(x, k, lam=0.1), np.float64)
    assert np.any((y > 0) & (y < 1))
    assert abs(y.sum() - k) <= 1e-6 * k


OF_INTEGERS = ("topk_mask", "hard_topk_mag", "soft_rank", "topk_fenchel_young_loss")


@pytest.mark.parametrize("name", [name for name in CALLS if name not in TRIED or name in OF_INTEGERS])
def test_operators_keep_float32_with_x64(name, x64):
    """The other operators, and narrow floats: `test_meshes.py`. Integers of 64 bits take one way in."""
    call = CALLS[name]
    entries = {key for key, value in call.arrays.items() if value.shape == (ROWS, N) and value.dtype == np.float32}
    for dtype in ["float32"] + ["int64"] * (name in OF_INTEGERS):
        arrays = {key: value.astype(dtype) if key in entries else value for key, value in call.arrays.items()}
        floats = {leaf.dtype.name for leaf in jax.tree.leaves(jax.eval_shape(call, arrays)) if leaf.dtype != bool}
        expected = {"float32" if dtype == "float32" and entries else "float64"}
        wider = {"float32", "float64"} if name in WIDER else set()
        assert {one for one in floats if "float" in one} <= expected | wider, dtype


def test_every_operator_is_tried():
    public = {
        name: getattr(module, name) for module in (ops, baselines, coding, gates, isotonic) for name in module.__all__
    }
    named = {name for name, function in public.items() if callable(function) and not isinstance(function, type)}
    tried = " ".join(CALLS) + " gates shrinkage"
    others = {"isotonic_solution"} | {  # which others call; in "gates" and in "shrinkage"
        "binary_concrete_cdf",
        "binary_concrete_pdf",
        "hard_concrete_cdf",
        "hard_concrete_pdf",
        "sample_gates",
        "deterministic_gates",
        "l0_penalty",
        "probability_one",
        "probability_open",
        "probability_zero",
        "sample_binary_concrete",
        "sigshrink",
        "soft_threshold_topk",
    }
    assert {name for name in named - others if name not in tried.split()} == set()


def test_the_entropy_of_float32_with_x64(x64):
    y = np.float32([0.5, 0.25, 0.25, 0.0])
    found = jax.jit(jax.value_and_grad(lambda y: CALLS["topk_conjugate of exp"](k=2, y=y)))(y)
    np.testing.assert_allclose(found[0], np.log(0.5), rtol=1e-6)
    assert found[0].dtype == found[1].dtype == jnp.float32


def test_the_equation_leaks_no_tracer():
    gc.freeze()  # what other tests have left takes time to look through, and is none of its business
    try:
        with jax.checking_leaks():
            jax.jit(jax.grad(lambda x: jnp.sum(topk_mask(x, 2, lam=0.5) ** 2))).trace(X[0])
    finally:
        gc.unfreeze()
