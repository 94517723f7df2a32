# ruff: noqa: E501  (the compiler prints long lines)
"""What a compiler says that a program takes, or why it refuses it; and what to change then."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import cifar100_vit, mnist_pruning, vmoe
from scripts.aot import advice, compiled, hardware, operations
from scripts.aot.compiled import Refused, TooLarge

REFUSAL = """RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 20.51G of 15.75G hbm. Exceeded hbm capacity by 4.76G.

Total hbm usage >= 21.01G:
    reserved        263.00M
    program          20.51G
    arguments            0B

Largest program allocations in hbm:

  1. Size: 6.75G
     Operator: op_name="jit(train)/jvp(VisionTransformer)/softmax" source_file="vit.py" source_line=281
     Shape: f32[64,12,577,577]{3,2,1,0:T(8,128)}
     Unpadded size: 1.02G
     Extra memory due to padding: 10.0M (1.0x expansion)
     XLA label: fusion.1 = fusion(copy-done.1), kind=kOutput
     Allocation type: HLO temp
     ==========================

  2. Size: 512.00M
     Shape: bf16[64,577,3072]{2,1,0:T(8,128)(2,1)}
     Allocation type: HLO temp
"""


class Lowered:
    """What a compiler refuses."""

    def __init__(self, message):
        self.message = message

    def compile(self):
        raise RuntimeError(self.message)


def test_a_program_that_is_too_large_names_its_largest_arrays():
    with pytest.raises(TooLarge) as raised:
        compiled.compile_(Lowered(REFUSAL), "tpu")
    error = raised.value
    assert (error.needed, error.available) == (20.51 * 2**30, 15.75 * 2**30)
    first, second = error.largest
    assert (first.bytes, first.shape) == (6.75 * 2**30, "f32[64,12,577,577]")
    assert first.source == "jit(train)/jvp(VisionTransformer)/softmax"
    assert (second.bytes, second.shape, second.source) == (2**29, "bf16[64,577,3072]", "")


def test_a_program_that_is_far_too_large_names_none():
    message = (
        "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries (74.96G) exceeds "
        "available HBM (15.75G)."
    )
    with pytest.raises(TooLarge) as raised:
        compiled.compile_(Lowered(message), "tpu")
    assert (raised.value.needed, raised.value.available) == (74.96 * 2**30, 15.75 * 2**30)
    assert raised.value.largest == ()

    def f(x):
        return jax.lax.scan(lambda x, _: (jnp.outer(x, x).sum(axis=0), None), x, None, 3)[0]

    traced = jax.jit(f).trace(jax.ShapeDtypeStruct((64,), np.float32))
    first = operations.largest(traced.jaxpr.jaxpr, 2)[0]
    assert (first.shape, first.bytes) == ("float32[64,64]", 64 * 64 * 4)


def test_any_other_refusal_is_a_line():
    with pytest.raises(Refused, match=r"^INTERNAL: Mosaic failed: two lines$"):
        compiled.compile_(Lowered("INTERNAL: Mosaic failed:\n  two lines"), "tpu")


def test_memory_operations_and_the_text(tmp_path):
    x = jax.ShapeDtypeStruct((128, 128), np.float32)
    lowered = jax.jit(lambda x, y: (x @ y, x), donate_argnums=0).lower(x, x)
    found = compiled.compile_(lowered, "cpu", tmp_path / "texts" / "program.txt")
    assert found.memory.arguments == 2 * 128 * 128 * 4
    assert found.memory.results < 2 * 128 * 128 * 4  # one of them lies where an argument was
    assert found.memory.peak >= 3 * 128 * 128 * 4
    assert found.flops == pytest.approx(2 * 128**3, rel=0.01)
    assert "ENTRY" in (tmp_path / "texts" / "program.txt").read_text()


def test_what_helps_is_what_the_config_has():
    slice_ = hardware.parse("v5litepod-16")
    config = vmoe.get_config()
    config.mesh = {"data": 16, "fsdp": 1, "expert": 1}
    found = "; ".join(advice.changes(config, state_bytes=1e9, available=16e9))
    for field in ("mesh.expert=N", "mesh.fsdp=N", "model.remat=True", "accumulate=2", "batch_size below 4096"):
        assert f"--config.{field}" in found
    # Parameters that take most of the memory are to be divided first of all.
    assert advice.changes(config, state_bytes=15e9, available=16e9)[0].startswith("--config.mesh.fsdp")
    config = cifar100_vit.get_config()  # which computes activations again already, and has no experts
    config.mesh = {"data": 16}
    found = "; ".join(advice.changes(config, 1e9, 16e9))
    assert "remat" not in found
    assert "expert" not in found
    found = advice.changes(mnist_pruning.get_config("relaxed"), 1e9, 16e9)
    assert found == ["--config.batch_size below 128", "a type with more devices"]
    first, largest, last = advice.lines(
        config, slice_, 1e9, 20e9, 16e9, [compiled.Buffer("f32[4096,4096]", 2**26, "jit(train)/dot")]
    )
    assert first == (
        "it does not fit: a device of v5litepod-16 has 16.0 GB, the step needs 20.0 GB, 1.0 GB of them for parameters "
        "and optimizer"
    )
    assert largest.split() == ["0.07", "GB", "f32[4096,4096]", "jit(train)/dot"]
    assert last.startswith("what helps: --config.mesh.fsdp=N")
