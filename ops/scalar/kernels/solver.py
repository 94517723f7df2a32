"""Chooses the kernel for the platform and the length of rows, or the loop if there is none."""

import functools
from collections.abc import Callable

from jax import Array, lax

from ...arithmetic import TwoFloat
from ..rows import Rows
from .divided import by_kernel, over_batches, over_devices
from .passes import Keys, Scalars, Solve
from .platforms import LONGEST, Platform, languages

# On a TPU 128 rows are solved side by side if there is room for the next 128; longer rows are solved one by one.
_SIDE_BY_SIDE = 8192
# Few rows do not fill 128 lanes either. For a row alone in its register, the scalar operations of a round take about as
# long as this many of its entries.
_ENTRIES_A_ROW = 128


def kernel_of(language: str, s: Array, *scalars: Array, keys: Keys, solve: Solve, interpret: bool = False) -> TwoFloat:
    """Returns the thresholds of rows ``(rows, n)`` by the kernel ``"tpu"``, or ``"mosaic"`` or ``"triton"`` on GPUs."""
    count, n = s.shape
    # Each Pallas backend is imported only where it is used, so that a broken one does not affect the others.
    if language == "tpu":
        from . import mosaic

        kernel = mosaic.side_by_side if n <= min(_SIDE_BY_SIDE, _ENTRIES_A_ROW * count) else mosaic.one_by_one
        return kernel(s, scalars, keys, solve, interpret=interpret)
    from . import gpu

    written_in = gpu.mosaic(interpret) if language == "mosaic" else gpu.triton(interpret)
    return gpu.row_by_row(s, scalars, keys, solve, written_in)


def solve_in_kernel(
    s: Array, scalars: Scalars, *, keys: Keys, solve: Solve, platforms: tuple[Platform, ...], interpret: bool
) -> TwoFloat:
    """Returns the thresholds of rows, by a kernel on ``platforms`` and by the loop elsewhere.

    Args:
      s: rows, float32, shape ``(rows, n)``.
      scalars: how much is selected, the strength of the regularisation, and further arguments of ``keys``; each of
        shape ``(rows, 1)``.
      keys: returns the keys by which entries compete, from entries and scalars.
      solve: solves entries in a given layout.
      platforms: the platforms on which a kernel is used.
      interpret: whether other platforms interpret the kernel for TPUs instead of using the loop.
    """

    def loop(s: Array, *scalars: Array, rows: Rows = Rows()) -> TwoFloat:
        return solve((keys(s, *scalars),), *scalars[:2], rows)

    def kernel_in(language: str, interpret: bool = False) -> Callable[..., TwoFloat]:
        return functools.partial(kernel_of, language, keys=keys, solve=solve, interpret=interpret)

    def solver_on(platform: Platform) -> Callable[..., TwoFloat]:
        n = s.shape[1]
        kernels = [kernel_in(language) for language in languages(platform, n)] if n <= LONGEST[platform] else []
        solver = by_kernel(kernels, loop, divisible=platform == "cuda")
        return over_batches(over_devices(solver, loop, len(scalars)) if platform == "cuda" else solver)

    branches = {platform: solver_on(platform) for platform in platforms}
    interpreted = over_batches(over_devices(kernel_in("tpu", True), loop, len(scalars)))

    return lax.platform_dependent(s, *scalars, **branches, default=interpreted if interpret else loop)
