"""Groups of entries of a row that is two matrices: which entry belongs to which, counted out one by one."""

import functools

import numpy as np

# By name, as `scripts.fuzz.operators` makes them: tiles of 2 by 4, rows of the matrices, and runs of 4 down a column.
GROUPS = ("blocks", "channels", "runs")


def shapes(n: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Of the two matrices, two thirds and a third of the entries; ``n`` is a multiple of 12."""
    return (4, n // 6), (4, n // 12)


@functools.cache
def members(groups: str, n: int) -> np.ndarray:
    """The number of the group of each entry, shape ``(n,)``."""
    found: dict[tuple[int, int, int], int] = {}
    numbers = []
    for leaf, (height, width) in enumerate(shapes(n)):
        for row in range(height):
            for column in range(width):
                place = {"blocks": (row // 2, column // 4), "channels": (row, 0), "runs": (0, column)}[groups]
                numbers.append((leaf, *place))
    for group in sorted(numbers):
        found.setdefault(group, len(found))
    return np.array([found[group] for group in numbers])


def number(groups: str, n: int) -> int:
    """How many compete with each other: the groups, or the entries of a run."""
    return 4 if groups == "runs" else int(members(groups, n).max()) + 1
