"""The kernels by the compilers of the chips, which need no chip: `pip install "jax[tpu]"`, or "jax[cuda13]".

One process at a time may use TPU's compiler. What is not installed is skipped. With "jax[cuda13]" and no GPU, say
`JAX_PLATFORMS=cpu`: JAX looks for the driver otherwise.
"""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import ops
from ops.scalar.kernels.platforms import LONGEST

_H200 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535 memory_bandwidth: 4800000000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 151397597184 shared_memory_per_block_optin: 232448 cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA" dnn_version_info { major: 9 minor: 10 patch: 0 } device_description_str: "NVIDIA H200 141GB HBM3e"
"""
_GPUS = {  # one for either language that kernels are written in
    "h200": _H200,
    "a100": _H200.replace("major: 9", "major: 8").replace("H200 141GB HBM3e", "A100-SXM4-80GB"),
}
_CHIPS = {"v5e": "v5litepod-4", "v6e": "v6e-4"}


def devices_of(name, monkeypatch):
    """Returns devices that are not there."""
    if name in _CHIPS:
        pytest.importorskip("libtpu")
        monkeypatch.setenv("TPU_SKIP_MDS_QUERY", "1")
        monkeypatch.setenv("TPU_ACCELERATOR_TYPE", _CHIPS[name])
        monkeypatch.setenv("TPU_WORKER_HOSTNAMES", "localhost")
        return topologies.get_topology_desc(topology_name=f"{name}:2x2", platform="tpu").devices
    if importlib.util.find_spec("jax_cuda13_plugin") is None:
        pytest.skip("jax_cuda13_plugin is not installed")
    options = {"topology": "1x1x1", "target_config": _GPUS[name]}
    return topologies.get_topology_desc(platform="cuda", topology_name=name, **options).devices


@pytest.fixture(params=[*_CHIPS, *_GPUS])
def chip(request, monkeypatch):
    """A mesh of one device that is not there."""
    return Mesh(np.array(devices_of(request.param, monkeypatch)[:1]), ("x",))


def compiled(mesh, function, shape, *spec):
    x = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(*spec)))
    with jax.set_mesh(mesh):
        return jax.jit(function).lower(x).compile()


@pytest.mark.parametrize("operator", [ops.topk_mask, ops.topk_mag, ops.hard_topk_mask])
def test_one_kernel_and_no_rounds(chip, operator):
    program = compiled(chip, lambda x: operator(x, 40), (12800, 400))
    text = program.as_text()
    assert text.count("custom_call_target=") == 1
    if operator is not ops.hard_topk_mask:  # ties are searched for in a loop of their own, where there are any
        assert " while(" not in text
        # What is written beside the result are scalars of rows.
        assert program.memory_analysis().temp_size_in_bytes < 0.1 * 4 * 12800 * 400


@pytest.mark.parametrize(("rows", "n"), [(128, 1000), (1, 25_088), (1, 1_000_000), (1, 10_000_000)])
def test_one_kernel_as_long_as_rows_fit(chip, rows, n):
    def gradient(x):
        return jax.grad(lambda x: ops.topk_mag(x, n // 10, p=4 / 3).sum())(x)

    text = compiled(chip, gradient, (rows, n)).as_text()
    fits = n <= LONGEST["tpu" if chip.devices.flat[0].platform == "tpu" else "cuda"]
    assert text.count("custom_call_target=") == fits
    assert (" while(" in text) != fits


def test_a_row_on_four_chips_is_not_gathered(monkeypatch):
    mesh = Mesh(np.array(devices_of("v5e", monkeypatch)), ("x",))
    text = compiled(mesh, lambda x: ops.topk_mask(x, 50), (8, 2**17), None, "x").as_text()
    assert " all-reduce" in text
    assert " all-gather" not in text
