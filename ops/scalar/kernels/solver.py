"""The solver as a kernel: the one for the platform and the size of the rows, or the loop where there is none."""

import functools
from collections.abc import Callable

from jax import Array, lax

from ..rows import Rows
from ..twofloat import TwoFloat
from .divided import by_kernel, over_batches, over_devices
from .passes import Keys, Scalars, Solve
from .platforms import LONGEST, Platform, languages

# On a TPU 128 rows lie side by side as long as they leave room for the next 128; longer ones are taken one by one.
_SIDE_BY_SIDE = 8192
# Nor do a few rows fill 128 lanes. What is computed of a row in each round takes about as long as so many entries of
# it, where all others of its register are idle.
_ENTRIES_A_ROW = 128


def kernel_of(language: str, s: Array, *scalars: Array, keys: Keys, solve: Solve, interpret: bool = False) -> TwoFloat:
    """The thresholds of rows ``(rows, n)`` by the kernel ``"tpu"``, or for GPUs ``"mosaic"`` or ``"triton"``."""
    count, n = s.shape
    # Every backend of Pallas is imported where it is used, so that none stands in the way of the others.
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
    """The thresholds of rows, in a kernel on these platforms.

    Args:
      s: rows, float32, shape ``(rows, n)``.
      scalars: how much is selected, the strength of the regularisation, and what else ``keys`` needs; each of shape
        ``(rows, 1)``.
      keys: what competes, of entries and scalars.
      solve: the solver, of entries in a given layout.
      platforms: those with a kernel that is to be used.
      interpret: whether on other platforms the kernel for TPUs is interpreted; it is the loop if not.
    """

    def loop(s: Array, *scalars: Array, rows: Rows = Rows()) -> TwoFloat:
        return solve((keys(s, *scalars),), *scalars[:2], rows)

    def by(language: str, interpret: bool = False) -> Callable[..., TwoFloat]:
        return functools.partial(kernel_of, language, keys=keys, solve=solve, interpret=interpret)

    def on(platform: Platform) -> Callable[..., TwoFloat]:
        n = s.shape[1]
        kernels = [by(language) for language in languages(platform, n)] if n <= LONGEST[platform] else []
        solver = by_kernel(kernels, loop, divisible=platform == "cuda")
        return over_batches(over_devices(solver, loop, len(scalars)) if platform == "cuda" else solver)

    branches = {platform: on(platform) for platform in platforms}
    interpreted = over_batches(over_devices(by("tpu", True), loop, len(scalars)))
    return lax.platform_dependent(s, *scalars, **branches, default=interpreted if interpret else loop)
