"""Methods to compare the paper's operators with: relaxed masks; sparse coding in `coding`, random gates in `gates`."""

from . import coding, gates
from .masks.permutations import neuralsort_topk_mask, softsort_topk_mask
from .masks.perturbed import perturbed_topk_mask
from .masks.thresholds import dftopk_mask, entropic_ot_topk_mask, lapsum_topk_mask, sigmoid_topk_mask

__all__ = [
    "coding",
    "dftopk_mask",
    "entropic_ot_topk_mask",
    "gates",
    "lapsum_topk_mask",
    "neuralsort_topk_mask",
    "perturbed_topk_mask",
    "sigmoid_topk_mask",
    "softsort_topk_mask",
]


def __dir__() -> list[str]:
    """Returns the public names; other modules are implementation."""
    return list(__all__)
