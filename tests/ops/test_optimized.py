"""Code as users run it, where `conftest.py` has the other tests compile in a hurry: nothing is slow in it."""

import os
import re

import jax
import jax.numpy as jnp
import pytest

import ops
from ops.pruning import Pruner

# XLA's defaults for what `conftest.py` sets. Values of such code: `test_problems.py`, where it says `optimized`.
AS_USERS = {
    "xla_backend_optimization_level": 3,
    "xla_cpu_parallel_codegen_split_count": 32,
}

LATE_CALLS = pytest.mark.skipif(not hasattr(jax, "Inline"), reason="this JAX inlines all calls early")


def test_as_users_covers_all_xla_flags():
    hurried = {flag.removeprefix("--").split("=")[0] for flag in os.environ.get("XLA_FLAGS", "").split()}
    assert hurried <= set(AS_USERS)


def test_no_reduction_is_constant_folded():
    """XLA would do it while it compiles, entry by entry: a minute for a batch of 4096 rows of 8192.

    Sums do not count: XLA multiplies instead.
    """

    def operator(x):
        return ops.knapsack_mask(x, 13, costs=2.0, caps=0.5, where=x > 0)

    def reductions(options):
        compiled = jax.jit(operator).lower(jax.ShapeDtypeStruct((16, 128), jnp.float32)).compile(options)
        return len(re.findall(r" reduce\(.*op_name=.*/reduce_(?!sum)", compiled.as_text()))

    assert reductions({"xla_disable_hlo_passes": "constant_folding"}) == reductions({}) > 0


def test_batch_loop_is_not_single_threaded():
    """XLA makes a function of one thread of what it takes for a small loop (`ops.scalar.rows.divided_over_cores`)."""
    program = jax.jit(lambda x: ops.topk_mag(x, 100)).lower(jax.ShapeDtypeStruct((128, 1000), jnp.float32))
    assert "xla_cpu_small_call" not in program.compile(AS_USERS).as_text()


@pytest.mark.parametrize(
    ("function", "shape"), [(ops.topk_mask, (1000,)), (jax.vmap(ops.topk_mask, (0, None)), (3, 1000))]
)
def test_only_a_short_row_is_a_small_call(function, shape):
    program = jax.jit(lambda x: function(x, 100)).lower(jax.ShapeDtypeStruct(shape, jnp.float32))
    short = len(shape) == 1 and jax.__version_info__ >= (0, 11, 1)
    text = program.compile(AS_USERS).as_text()
    assert ("xla_cpu_small_call" in text) == short
    # What comes ahead of the passes is part of it; outside are the mask, and k and lam.
    assert not short or text.rpartition("ENTRY")[2].count(" fusion(") <= 3


def test_program_size_is_linear_in_calls(monkeypatch):
    """XLA would compute each call anew wherever a later one reads it, and compile each with what surrounds it."""
    monkeypatch.setattr(jax, "device_count", lambda: 1)

    def lowered(calls):
        def loss(x):
            for shift in range(calls):
                x = jnp.sin(x) * ops.topk_mag(x + shift, 7, p=4 / 3)
            return x.sum()

        return jax.jit(jax.grad(loss)).lower(jax.ShapeDtypeStruct((6, 25), jnp.float32))

    programs = [lowered(calls) for calls in (1, 2)]
    one, two = (program.compile().as_text().count(" = ") for program in programs)
    assert two < 2.2 * one
    assert ("xla_late" in programs[0].as_text()) == hasattr(jax, "Inline")


@pytest.mark.parametrize("side", [8, pytest.param(257, marks=LATE_CALLS)])
def test_program_hardly_grows_with_leaves(side, monkeypatch):
    """Each leaf, small or large, would be compiled on its own in each pass."""
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    pruner = Pruner(density=0.1, lam=0.1)

    def lines(leaves):
        params = {f"layer{i}": {"kernel": jax.ShapeDtypeStruct((side, side), jnp.float32)} for i in range(leaves)}
        lowered = jax.jit(pruner).lower(params)
        # What large leaves share is written once, and inlined once it is compiled.
        text = lowered.as_text() if side > 8 else lowered.compile().as_text()
        return text.count(" = ")

    assert lines(12) < 1.8 * lines(4)
