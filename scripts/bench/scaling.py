"""How the time of one long row grows with its length."""

from typing import Any

import numpy as np

from scripts.bench.contestants import MODES, Contestant, draw
from scripts.bench.sizes import Case
from scripts.bench.timing import Budget, interleave


def scaling(contestant: Contestant, sizes: tuple[int, ...], budget: Budget, seed: int = 0) -> dict[str, Any]:
    """Medians at every size ``n`` with ``k = n / 10``, and the slope of log time against log n, per mode.

    A slope of 1 is linear time. Fixed costs at small sizes pull it below; caches that overflow, and memory that the
    system hands out page by page, push it above: ``local_slope``, between neighbouring sizes, shows where.
    """
    calls = {}
    for n in sizes:
        prepared = contestant.prepare(draw(Case(1, n, n // 10), seed))
        for mode in MODES:
            prepared[mode]()
            calls[mode, n] = prepared[mode]
    times = interleave(calls, budget)
    medians = {mode: [times[mode, n].median_ms for n in sizes] for mode in MODES}
    slopes = {mode: float(np.polyfit(np.log(sizes), np.log(medians[mode]), 1)[0]) for mode in MODES}
    steps = np.diff(np.log(sizes))
    local = {mode: (np.diff(np.log(medians[mode])) / steps).tolist() for mode in MODES}
    return {
        "contestant": contestant.name,
        "n": list(sizes),
        "median_ms": medians,
        "slope": slopes,
        "local_slope": local,
    }
