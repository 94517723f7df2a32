"""Relaxed, sparse and differentiable top-k operators in JAX.

Every function raises a ValueError for an argument that is out of range or of the wrong shape, if it is known at trace
time; the message is one line that names the argument, its value and what is allowed.
"""

__version__ = "0.1.0"

import sys

from . import baselines, isotonic, pruning
from .accuracy import topk_accuracy, topk_surrogate_loss
from .gradients import straight_through
from .groups import NM, Blocks, Channels
from .isotonic import isotonic_regression
from .knapsack import knapsack_mask
from .losses import topk_fenchel_young_loss, topk_fenchel_young_mixture
from .nonlinearities import Nonlinearity
from .norms import k_support_norm, owl_norm, topk_conjugate
from .permutahedron import project_permutahedron, soft_quantile, soft_rank, soft_sort
from .plan import TopkPlan, topk_plan
from .slots import SoftTopk, gather_slots, scatter_slots, soft_topk
from .support import lam_of_support
from .thresholds import TopkThreshold, prefix_topk_threshold, topk_threshold
from .topk import hard_topk_mag, hard_topk_mask, relaxed_topk, sparsemax, topk_mag, topk_mask
from .trees import topk_mag_tree, topk_mask_tree
from .values import relaxed_topk_value

__all__ = [
    "NM",
    "Blocks",
    "Channels",
    "Nonlinearity",
    "SoftTopk",
    "TopkPlan",
    "TopkThreshold",
    "baselines",
    "gather_slots",
    "hard_topk_mag",
    "hard_topk_mask",
    "isotonic",
    "isotonic_regression",
    "k_support_norm",
    "knapsack_mask",
    "lam_of_support",
    "owl_norm",
    "prefix_topk_threshold",
    "project_permutahedron",
    "pruning",
    "relaxed_topk",
    "relaxed_topk_value",
    "scatter_slots",
    "soft_quantile",
    "soft_rank",
    "soft_sort",
    "soft_topk",
    "sparsemax",
    "straight_through",
    "topk_accuracy",
    "topk_conjugate",
    "topk_fenchel_young_loss",
    "topk_fenchel_young_mixture",
    "topk_mag",
    "topk_mag_tree",
    "topk_mask",
    "topk_mask_tree",
    "topk_plan",
    "topk_surrogate_loss",
    "topk_threshold",
]


def __dir__() -> list[str]:
    """Returns the public names; other modules are implementation."""
    return list(__all__)


# A folder `ops` and an installed `sparse_topk` are two packages: a `Scored` of one is any other pytree to the other.
_OTHER = {"ops": "sparse_topk", "sparse_topk": "ops"}.get(__name__, "")
if hasattr(sys.modules.get(_OTHER), "topk_mask"):
    raise ImportError(f"{__name__} is a second copy of {_OTHER}, which is imported already: import one of them alone")
