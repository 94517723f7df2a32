"""Methods to compare the paper's operators with, one file each: masks, sparse coding, random gates."""

from .coding.attention import ScaleFreeAttention, scale_free_attention, sparsemax_attention
from .coding.least_squares import curvature_bound
from .coding.lista import Lista
from .coding.ridge_regression import ridge_code
from .coding.soft_threshold import sigshrink, soft_threshold_topk
from .coding.sparse_coding import SparseCode, sparse_code
from .gates.binary_concrete import binary_concrete_cdf, binary_concrete_pdf, sample_binary_concrete
from .gates.hard_concrete import (
    deterministic_gates,
    hard_concrete_cdf,
    hard_concrete_pdf,
    l0_penalty,
    probability_one,
    probability_open,
    probability_zero,
    sample_gates,
)
from .masks.entropic_ot import entropic_ot_topk_mask
from .masks.lapsum import lapsum_topk_mask
from .masks.neuralsort import neuralsort_topk_mask
from .masks.perturbed import perturbed_topk_mask
from .masks.sigmoid import sigmoid_topk_mask
from .masks.softsort import softsort_topk_mask

__all__ = [
    "Lista",
    "ScaleFreeAttention",
    "SparseCode",
    "binary_concrete_cdf",
    "binary_concrete_pdf",
    "curvature_bound",
    "deterministic_gates",
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
