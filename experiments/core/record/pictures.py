"""What there is to see of a run at its end: images, and how the numbers of its parameters are distributed.

`pictures.npz` has three kinds of arrays:

images/NAME    uint8 [N, H, W, C] with C = 1 or 3, of the first seed
counts/NAME    int64 [BINS]: how many numbers of an array of parameters, over all seeds, lie in bins of equal width
edges/NAME     float64 [BINS + 1], of these bins
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

BINS = 64


@dataclasses.dataclass(frozen=True)
class Histogram:
    """Of the numbers that are finite: `counts` [BINS] between `edges` [BINS + 1]."""

    counts: np.ndarray
    edges: np.ndarray

    @staticmethod
    def of(numbers: np.ndarray) -> "Histogram":
        """Of an array of any shape."""
        finite = numbers[np.isfinite(numbers)]
        # In float64: bins between neighbouring numbers of float32 have no width in it, those of the largest too much.
        low, high = (np.float64(finite.min()), np.float64(finite.max())) if finite.size else (0.0, 1.0)
        return Histogram(*np.histogram(finite, BINS, (low, high)))


@dataclasses.dataclass(frozen=True)
class Pictures:
    """Of one run; empty of one that kept none.

    Attributes:
      images: uint8 [N, H, W, C] by name.
      histograms: by the names of the arrays of parameters.
    """

    images: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    histograms: Mapping[str, Histogram] = dataclasses.field(default_factory=dict)

    def arrays(self) -> dict[str, np.ndarray]:
        """As the file has them."""
        return {
            **{f"images/{name}": images for name, images in self.images.items()},
            **{f"counts/{name}": histogram.counts for name, histogram in self.histograms.items()},
            **{f"edges/{name}": histogram.edges for name, histogram in self.histograms.items()},
        }

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray]) -> "Pictures":
        """Those of a file."""
        kinds: dict[str, dict[str, np.ndarray]] = {"images": {}, "counts": {}, "edges": {}}
        for key, array in arrays.items():
            kind, _, name = key.partition("/")
            kinds[kind][name] = array
        histograms = {name: Histogram(counts, kinds["edges"][name]) for name, counts in kinds["counts"].items()}
        return Pictures(kinds["images"], histograms)
