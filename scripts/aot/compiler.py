"""The compilers of accelerators, on a machine that has none: devices to compile for, of a slice.

TPUs need the package libtpu (`make install VENV=.venv-tpu JAX=tpu`), GPUs jax's CUDA plugin (`VENV=.venv-cuda13
JAX=cuda13`). What they make can be looked at but not run. Nothing may be computed eagerly under `jax.set_mesh` of such
devices.
"""

import importlib.util
import os
from collections.abc import Sequence
from typing import Any

import jax

from experiments.core.errors import UsageError
from scripts.aot.hardware import Slice

_PACKAGES = {"tpu": "libtpu", "cuda": "jax_cuda13_plugin"}
_EXTRAS = {"tpu": "tpu", "cuda": "cuda13"}
# XLA's GpuTargetConfigProto of a chip, shortened to what the compiler asks for (openxla/xla,
# xla/backends/gpu/target_config/specs).
_TARGETS = {
    "H200": """
        gpu_device_info {
          threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
          shared_memory_per_core: 233472 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
          block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
          memory_bandwidth: 4800000000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
          device_memory_size: 151397597184 shared_memory_per_block_optin: 232448
          cuda_compute_capability { major: 9 } registers_per_core_limit: 65536 registers_per_block_limit: 65536
        }
        platform_name: "CUDA" dnn_version_info { major: 9 minor: 10 patch: 0 }
        device_description_str: "NVIDIA H200 141GB HBM3e"
    """
}
# The two cores of a chip are one device, as they are on real ones; the compiler makes two of them if it is not told.
_CHIPS = {"TPU v4": "megacore"}
# Tuning would run candidates on the device. Untuned, XLA finds no tiles for some products in Triton: cuBLAS has them.
_NO_TUNING = ("--xla_gpu_autotune_level=0", "--xla_gpu_enable_triton_gemm=false")
# TPU's compiler takes a lock as if it had a TPU to itself; several processes may compile.
_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "JAX_PLATFORMS": "cpu",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


def available(platform: str) -> bool:
    """Whether the package with the compiler is installed."""
    return importlib.util.find_spec(_PACKAGES[platform]) is not None


def prepare(slice_: Slice) -> None:
    """Sets the variables that the compiler reads; before the first use of JAX's devices.

    Raises:
      UsageError: the package with the compiler is not installed.
    """
    platform = slice_.device.platform
    if not available(platform):
        extra = _EXTRAS[platform]
        raise UsageError(
            f"--type={slice_.type} needs the package {_PACKAGES[platform]}, which is not installed here: "
            f"`make install VENV=.venv-{extra} JAX={extra}`, then .venv-{extra}/bin/python -m scripts.aot ..."
        )
    os.environ.update(_ENVIRONMENT)
    if platform == "tpu":
        os.environ["TPU_ACCELERATOR_TYPE"] = slice_.type_of_one
    else:
        given = os.environ.get("XLA_FLAGS", "").split()
        os.environ["XLA_FLAGS"] = " ".join([*given, *(flag for flag in _NO_TUNING if flag not in given)])
    # A program says what is computed, and not in which lines of which files: two that are the same look the same.
    jax.config.update("jax_traceback_in_locations_limit", 0)
    # No CPU is computed on, whatever the environment said when JAX was imported.
    jax.config.update("jax_platforms", "cpu")


def devices(slice_: Slice) -> Sequence[Any]:
    """Those of a slice, after `prepare`.

    Raises:
      UsageError: the compiler knows no such slice.
    """
    from jax.experimental import topologies

    platform = slice_.device.platform
    options: dict[str, Any] = {}
    name = slice_.topology
    if slice_.slices > 1:
        options["num_slices"] = slice_.slices
    if slice_.device.name in _CHIPS:
        options["chip_config_name"] = _CHIPS[slice_.device.name]
    if platform == "cuda":
        name = slice_.type
        options = {"topology": slice_.topology, "target_config": _TARGETS[slice_.device.name]}
    try:
        found = topologies.get_topology_desc(topology_name=name, platform=platform, **options).devices
    except Exception as error:  # whatever the plugin raises
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UsageError(f"--type={slice_.type}: the compiler makes no such slice ({reason})") from error
    if len(found) != slice_.count:
        raise UsageError(f"--type={slice_.type}: the compiler sees {len(found)} devices instead of {slice_.count}")
    return found
