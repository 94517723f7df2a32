"""The operators' central tests again, with code as users run it: `conftest.py` has the others compile in a hurry."""

import functools
import os
import re

import jax
import jax.numpy as jnp
import pytest

import ops
from tests.ops import test_edge_cases, test_golden

# XLA's defaults for what `conftest.py` sets.
AS_USERS = {
    "xla_backend_optimization_level": 3,
    "xla_cpu_parallel_codegen_split_count": 32,
}


def optimized(operator):
    """The operator, compiled as users compile it."""

    @functools.wraps(operator)
    def apply(x, k, **options):
        return jax.jit(lambda x, k: operator(x, k, **options), compiler_options=AS_USERS)(x, k)

    return apply


def test_central_tests_hold_for_optimized_code(monkeypatch):
    """What inexact arithmetic would show in first: ten digits of float64, and thresholds that no float32 holds."""
    hurried = {flag.removeprefix("--").split("=")[0] for flag in os.environ.get("XLA_FLAGS", "").split()}
    assert hurried <= set(AS_USERS)
    for module in (test_golden, test_edge_cases):
        for name in ("topk_mask", "topk_mag"):
            monkeypatch.setattr(module, name, optimized(getattr(module, name)))
    with jax.enable_x64(True):
        test_golden.test_mask(4 / 3)
        test_golden.test_debiased_magnitude(2.0)
    test_edge_cases.test_lam_far_below_the_resolution_of_x(2.0)


@pytest.mark.parametrize(
    "operator",
    [
        lambda x: ops.knapsack_mask(x, 13, costs=2.0, caps=0.5, where=x > 0),
        lambda x: ops.topk_plan(x[None], 3, 20).plan,
        lambda x: ops.topk_mask(x, 13),
    ],
    ids=["knapsack_mask with options", "topk_plan", "topk_mask"],
)
def test_the_compiler_is_left_no_reduction_of_constants(operator):
    """XLA would do it while it compiles, entry by entry: a minute for a batch of 4096 rows of 8192.

    Sums do not count: XLA multiplies instead.
    """

    def reductions(options):
        compiled = jax.jit(operator).lower(jax.ShapeDtypeStruct((16, 128), jnp.float32)).compile(options)
        return len(re.findall(r" reduce\(.*op_name=.*/reduce_(?!sum)", compiled.as_text()))

    assert reductions({"xla_disable_hlo_passes": "constant_folding"}) == reductions({}) > 0


@pytest.mark.parametrize("operator", [ops.topk_mask, ops.topk_mag])
def test_no_loop_over_passes_is_left_to_one_core(operator):
    """XLA makes a function of one thread of what it takes for a small loop (`ops.scalar.cpu.over_cores`)."""
    program = jax.jit(lambda x: operator(x, 100)).lower(jax.ShapeDtypeStruct((128, 1000), jnp.float32))
    assert "xla_cpu_small_call" not in program.compile(AS_USERS).as_text()
