"""The compilers of accelerators, on a machine that has none: devices to compile for, of a slice.

TPUs need the package libtpu, GPUs JAX's CUDA plugin, each in an environment of its own. What they make can be looked at
but not run. Nothing may be computed eagerly under `jax.set_mesh` of such devices.
"""

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
from jax.experimental import topologies

from experiments.core.errors import UsageError, first_line
from experiments.core.record.chips import Slice

ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = {"tpu": "libtpu", "cuda": "jax-cuda13-plugin"}
_EXTRAS = {"tpu": "tpu", "cuda": "cuda13"}  # of jax, and of the names of environments
# XLA's GpuTargetConfigProto of the chip, shortened to what the compiler asks for (openxla/xla,
# xla/backends/gpu/target_config/specs).
_H200 = """
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
# Tuning would run candidates on the device. Untuned, XLA finds no tiles for some products in Triton: cuBLAS has them.
_NO_TUNING = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"
# TPU's compiler takes a lock as if it had a TPU to itself; several processes may compile.
_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "JAX_PLATFORMS": "cpu",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


def available(platform: str) -> bool:
    """Tells whether the package with the compiler is installed here."""
    return importlib.util.find_spec(_PACKAGES[platform].replace("-", "_")) is not None


def other_python(platform: str) -> Path | None:
    """The Python of .venv-tpu or .venv-cuda13, if there is one, where this one lacks the compiler; else None."""
    environment = ROOT / f".venv-{_EXTRAS[platform]}"
    elsewhere = not available(platform) and Path(sys.prefix) != environment
    return environment / "bin" / "python" if elsewhere and environment.exists() else None


def versions(platform: str) -> dict[str, str]:
    """Versions of the packages that a compiled program depends on."""
    return {name: metadata.version(name) for name in ("jax", "jaxlib", _PACKAGES[platform])}


def prepare(slice_: Slice) -> None:
    """Sets the variables that the compiler reads; before the first use of JAX's devices.

    Raises:
      UsageError: the package with the compiler is not installed.
    """
    platform, extra = slice_.platform, _EXTRAS[slice_.platform]
    if not available(platform):
        raise UsageError(
            f"--type={slice_.type} needs the package {_PACKAGES[platform]}, which is not installed here: "
            f"`make install VENV=.venv-{extra} JAX={extra}` makes an environment that has it, which is then used"
        )
    os.environ.update(_ENVIRONMENT)
    if platform == "tpu":
        os.environ["TPU_ACCELERATOR_TYPE"] = slice_.type.removeprefix(f"{slice_.slices}x")
    else:
        os.environ["XLA_FLAGS"] = f"{_NO_TUNING} {os.environ.get('XLA_FLAGS', '')}"  # the last of two counts
    # A program says what is computed, and not in which lines of which files: two that are the same look the same.
    jax.config.update("jax_traceback_in_locations_limit", 0)
    # No CPU is computed on, whatever the environment said when JAX was imported.
    jax.config.update("jax_platforms", "cpu")


def devices(slice_: Slice) -> Sequence[Any]:
    """Returns the compiler's devices for a slice, after `prepare`.

    Raises:
      UsageError: the compiler knows no such slice.
    """
    name, options = slice_.topology, dict[str, Any]()
    if slice_.slices > 1:
        options["num_slices"] = slice_.slices
    if slice_.chip.name == "TPU v4":  # its two cores are one device, as on real ones: else the compiler makes two
        options["chip_config_name"] = "megacore"
    if slice_.platform == "cuda":
        name, options = slice_.type, {"topology": slice_.topology, "target_config": _H200}
    try:
        found = topologies.get_topology_desc(topology_name=name, platform=slice_.platform, **options).devices
    except Exception as error:  # whatever the plugin raises
        raise UsageError(f"--type={slice_.type}: the compiler makes no such slice ({first_line(error)})") from error
    if len(found) != slice_.count:
        raise UsageError(f"--type={slice_.type}: the compiler sees {len(found)} devices instead of {slice_.count}")
    return found
