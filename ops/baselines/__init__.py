"""Methods that the paper's operators are compared with, one file each."""

from ops.baselines.entropic_ot import entropic_ot_topk_mask
from ops.baselines.lapsum import lapsum_topk_mask
from ops.baselines.neuralsort import neuralsort_topk_mask
from ops.baselines.perturbed import perturbed_topk_mask
from ops.baselines.sigmoid import sigmoid_topk_mask
from ops.baselines.softsort import softsort_topk_mask

__all__ = [
    "entropic_ot_topk_mask",
    "lapsum_topk_mask",
    "neuralsort_topk_mask",
    "perturbed_topk_mask",
    "sigmoid_topk_mask",
    "softsort_topk_mask",
]
