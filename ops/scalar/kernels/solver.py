"""The solver as a kernel: the one for the platform and the size of the rows, or the loop where there is none."""

import functools
from collections.abc import Callable

from jax import Array, lax

from ..rows import Rows
from ..twofloat import TwoFloat
from .divided import over_batches, over_devices, unless_divided
from .passes import Keys, Scalars, Solve
from .platforms import Platform

# On a TPU 128 rows lie side by side as long as they leave room for the next 128; longer ones are taken one by one.
_SIDE_BY_SIDE = 8192
# Nor do a few rows fill 128 lanes. What is computed of a row in each round takes about as long as so many entries of
# it, where all others of its register are idle.
_ENTRIES_A_ROW = 128
# On a GPU one of its many processors works on a row as long as that is in reach of its cache.
_ONE_PROGRAM = 2**17


def kernel_of(
    platform: Platform, s: Array, *scalars: Array, keys: Keys, solve: Solve, interpret: bool = False
) -> TwoFloat:
    """The thresholds of rows ``(rows, n)`` by the kernel of a platform; interpreted, on any platform."""
    count, n = s.shape
    # Either backend of Pallas is imported where it is used, so that neither stands in the way of the other.
    if platform == "cuda":
        from . import blocks, triton

        kernel = triton.row_by_row if n <= _ONE_PROGRAM else blocks.in_blocks
    else:
        from . import mosaic

        kernel = mosaic.side_by_side if n <= min(_SIDE_BY_SIDE, _ENTRIES_A_ROW * count) else mosaic.one_by_one
    return kernel(s, scalars, keys, solve, interpret=interpret)


def solve_in_kernel(
    s: Array,
    scalars: Scalars,
    *,
    keys: Keys,
    solve: Solve,
    loop: Solve,
    platforms: tuple[Platform, ...],
    interpret: bool,
) -> TwoFloat:
    """The thresholds of rows, in a kernel on these platforms.

    Args:
      s: rows, float32, shape ``(rows, n)``.
      scalars: how much is selected, the strength of the regularisation, and what else ``keys`` needs; each of shape
        ``(rows, 1)``.
      keys: what competes, of entries and scalars.
      solve: the solver, of entries in a given layout.
      loop: likewise, outside of kernels.
      platforms: those with a kernel that is to be used.
      interpret: whether on other platforms the kernel for TPUs is interpreted; it is the loop if not.
    """

    def otherwise(s: Array, *scalars: Array, rows: Rows = Rows()) -> TwoFloat:
        return loop((keys(s, *scalars),), *scalars[:2], rows)

    def divided(platform: Platform, interpret: bool) -> Callable[..., TwoFloat]:
        kernel = functools.partial(kernel_of, platform, keys=keys, solve=solve, interpret=interpret)
        if platform == "tpu" and not interpret:
            return over_batches(unless_divided(kernel, otherwise))
        return over_batches(over_devices(kernel, otherwise, len(scalars)))

    branches = {platform: divided(platform, False) for platform in platforms}
    default = divided("tpu", True) if interpret else otherwise
    return lax.platform_dependent(s, *scalars, **branches, default=default)
