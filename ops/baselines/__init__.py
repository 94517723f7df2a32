"""Methods to compare the paper's operators with, masks, sparse coding, random gates."""

from .coding import (
    Lista,
    SparseCode,
    curvature_bound,
    ridge_code,
    scale_free_attention,
    sigshrink,
    soft_threshold_topk,
    sparse_code,
    sparsemax_attention,
)
from .gates import (
    binary_concrete_cdf,
    binary_concrete_pdf,
    deterministic_gates,
    hard_concrete_cdf,
    hard_concrete_pdf,
    l0_penalty,
    probability_one,
    probability_open,
    probability_zero,
    sample_binary_concrete,
    sample_gates,
)
from .masks.permutations import neuralsort_topk_mask, softsort_topk_mask
from .masks.perturbed import perturbed_topk_mask
from .masks.thresholds import dftopk_mask, entropic_ot_topk_mask, lapsum_topk_mask, sigmoid_topk_mask

__all__ = [
    "Lista",
    "SparseCode",
    "binary_concrete_cdf",
    "binary_concrete_pdf",
    "curvature_bound",
    "deterministic_gates",
    "dftopk_mask",
    "entropic_ot_topk_mask",
    "hard_concrete_cdf",
    "hard_concrete_pdf",
    "l0_penalty",
    "lapsum_topk_mask",
    "neuralsort_topk_mask",
    "perturbed_topk_mask",
    "probability_one",
    "probability_open",
    "probability_zero",
    "ridge_code",
    "sample_binary_concrete",
    "sample_gates",
    "scale_free_attention",
    "sigmoid_topk_mask",
    "sigshrink",
    "soft_threshold_topk",
    "softsort_topk_mask",
    "sparse_code",
    "sparsemax_attention",
]


def __dir__() -> list[str]:
    """Returns the public names; other modules are implementation."""
    return list(__all__)
