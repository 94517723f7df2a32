"""Where there is a kernel: for which chips, rows and equations. Imports nothing of Pallas, which takes a while."""

import re
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import AxisType

from ...nonlinearities import ABS, EXP, HALF_SQUARE, IDENTITY
from ..equation import Equation
from ..rows import Rows

Platform = Literal["tpu", "cuda"]
PLATFORMS: tuple[Platform, ...] = ("tpu", "cuda")

# The longest rows. On a TPU one of them has to fit in the 64 MB of vector memory that chips have from v5e on (older
# ones have 16 MB). On a GPU one of its many processors works on a row: on an H200 at .6 (Triton) or 1.5 (Mosaic)
# nanoseconds an entry, while the loop takes .23 ms for a row of whatever length up to a million.
LONGEST: dict[Platform, int] = {"tpu": 12 * 2**20, "cuda": 2**18}
_LONGEST_ON_OLDER_TPUS = 2 * 2**20
# Compute capability 9 and 10, as parts of the names of devices. On others Mosaic for GPUs ends the process.
_MOSAIC = ("H100", "H200", "H800", "B100", "B200", "B300")
# Lengths of rows for which it comes first: on an H200 it takes .8 of Triton's time for rows of 8,192, as long for rows
# of 1,000, and twice as long for those of 400 (one warp suffices Triton, Mosaic wants four) and of a million.
_MOSAIC_FIRST = range(513, 8193)


def target() -> tuple[str, str]:
    """Platform and kind of the device that a program being traced is likely to be compiled for.

    That of the mesh in force, if it has devices (as those of a topology, where there is no device at all), or JAX's
    default: that of ``jax.default_device``, if one is in force.
    """
    device: Any = jax.sharding.get_abstract_mesh().abstract_device
    if device is None:
        chosen = jax.config.jax_default_device
        device = chosen if isinstance(chosen, jax.Device) else jax.devices(chosen)[0]
    platform = device.platform
    # "9.0" of one of NVIDIA's, "gfx942" of one of AMD's.
    if platform == "gpu" and not re.match(r"[89]\.|\d\d\.", getattr(device, "compute_capability", "8.0")):
        platform = "other gpu"
    return {"gpu": "cuda"}.get(platform, platform), device.device_kind


def languages(platform: Platform, n: int) -> tuple[str, ...]:
    """Languages in which kernels for rows of ``n`` on the device are written, in the order in which they are tried."""
    if platform == "tpu":
        return ("tpu",)
    if not any(chip in target()[1] for chip in _MOSAIC):
        return ("triton",)
    return ("mosaic", "triton") if n in _MOSAIC_FIRST else ("triton", "mosaic")


def why_not(n: int, dtype: Any) -> str | None:
    """What rows would have to have to be solved in a kernel, of any platform; ``None`` if they do."""
    if dtype != jnp.float32:
        return f"a dtype of at most 32 bits, got {dtype}"
    longest = max(LONGEST.values())
    return f"at most {longest} entries in a row, got {n}" if n > longest else None


def kernels_for(entries: tuple[Array, ...], equation: Equation) -> tuple[Platform, ...]:
    """The platform whose kernel pays for these rows, if they are likely to be solved there."""
    known = equation.phi in (IDENTITY, ABS, HALF_SQUARE, EXP)
    if equation.method == "loop" or equation.rows != Rows() or not known or jnp.result_type(float) == jnp.float64:
        return ()
    (s,) = entries
    platform, kind = target()
    if platform not in LONGEST or s.dtype != jnp.float32:
        return ()
    mesh = jax.sharding.get_abstract_mesh()
    manual = [kind == AxisType.Manual for kind in mesh.axis_types]
    # What is divided by hand in part, the compiler does not divide any further: nor along an axis of one device.
    if any(manual) and not all(manual) and mesh.size > 1:
        return ()
    longest = LONGEST[platform]
    if platform == "tpu" and any(old in kind for old in ("v2", "v3", "v4")):
        longest = _LONGEST_ON_OLDER_TPUS
    return (platform,) if s.shape[1] <= longest else ()
