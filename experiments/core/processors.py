"""The processors that this process may use, which may be fewer than the machine has."""

import os


def available() -> list[int]:
    """Their numbers; where the system does not tell which, those of all."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
