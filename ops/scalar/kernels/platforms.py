"""The chips, rows and equations that have a kernel, without an import of Pallas, which takes half a second."""

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array

from ...interface import target
from ...nonlinearities import ABS, EXP, HALF_SQUARE, IDENTITY
from ..equation import Equation
from ..rows import Rows

Platform = Literal["tpu", "cuda"]
PLATFORMS: tuple[Platform, ...] = ("tpu", "cuda")

# The longest rows. On a TPU a row must fit into vector memory, which is 64 MB from v5e on (16 MB on older chips). On a
# GPU one of its many processors works on a row: on an H200 it takes 0.6 (Triton) or 1.5 (Mosaic) nanoseconds per entry,
# while the loop takes 0.2 ms for a row of any length up to a million.
LONGEST: dict[Platform, int] = {"tpu": 12 * 2**20, "cuda": 2**18}
_LONGEST_ON_OLDER_TPUS = 2 * 2**20
# Parts of the names of devices of compute capability 9 and 10. On others Mosaic for GPUs aborts the process.
_MOSAIC = ("H100", "H200", "H800", "B100", "B200", "B300")
# Lengths of rows for which Mosaic is tried first. On an H200 it takes 0.8 of Triton's time for rows of 8,192, the same
# time for rows of 1,000, and twice the time for rows of 400 (Triton needs one warp, Mosaic four) and of a million.
_MOSAIC_FIRST = range(513, 8193)


def languages(platform: Platform, n: int) -> tuple[str, ...]:
    """Returns the kernel languages for rows of ``n`` entries on the device, in the order in which they are tried."""
    if platform == "tpu":
        return ("tpu",)
    if not any(chip in target()[1] for chip in _MOSAIC):
        return ("triton",)
    return ("mosaic", "triton") if n in _MOSAIC_FIRST else ("triton", "mosaic")


def unmet_requirement(n: int, dtype: Any) -> str | None:
    """Returns a requirement of every kernel that rows of ``n`` entries do not meet, or ``None`` if there is none."""
    if dtype != jnp.float32:
        return f"a dtype of at most 32 bits, got {dtype}"
    longest = max(LONGEST.values())
    return f"at most {longest} entries in a row, got {n}" if n > longest else None


def kernels_for(entries: tuple[Array, ...], equation: Equation) -> tuple[Platform, ...]:
    """Returns the platform whose kernel pays off for these rows, if the program is likely to run there, or ``()``."""
    built_in = equation.phi in (IDENTITY, ABS, HALF_SQUARE, EXP)
    if equation.method == "loop" or equation.rows != Rows() or not built_in or jnp.result_type(float) == jnp.float64:
        return ()
    (s,) = entries
    platform, kind = target()
    if platform not in LONGEST or s.dtype != jnp.float32:
        return ()
    mesh = jax.sharding.get_abstract_mesh()
    # The compiler does not divide a kernel further inside a `shard_map` over some of the mesh axes only.
    if 0 < len(mesh.manual_axes) < len(mesh.axis_names) and mesh.size > 1:
        return ()
    longest = LONGEST[platform]
    if platform == "tpu" and any(old in kind for old in ("v2", "v3", "v4")):
        longest = _LONGEST_ON_OLDER_TPUS
    return (platform,) if s.shape[1] <= longest else ()
