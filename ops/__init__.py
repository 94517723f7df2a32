"""Relaxed, sparse and differentiable top-k operators in JAX."""

from ops import baselines, isotonic
from ops.accuracy import topk_accuracy
from ops.gradients import straight_through
from ops.isotonic import isotonic_regression
from ops.losses import topk_fenchel_young_loss, topk_fenchel_young_mixture
from ops.nonlinearities import Nonlinearity, register_nonlinearity
from ops.norms import k_support_negentropy, k_support_norm, owl_norm, topk_conjugate
from ops.permutahedron import lmo, project_permutahedron, soft_quantile, soft_rank, soft_sort
from ops.topk import hard_topk_mag, hard_topk_mask, relaxed_topk, sparsemax, topk_mag, topk_mask
from ops.trees import topk_mag_tree
from ops.values import relaxed_topk_value, topk_sum

__all__ = [
    "Nonlinearity",
    "baselines",
    "hard_topk_mag",
    "hard_topk_mask",
    "isotonic",
    "isotonic_regression",
    "k_support_negentropy",
    "k_support_norm",
    "lmo",
    "owl_norm",
    "project_permutahedron",
    "register_nonlinearity",
    "relaxed_topk",
    "relaxed_topk_value",
    "soft_quantile",
    "soft_rank",
    "soft_sort",
    "sparsemax",
    "straight_through",
    "topk_accuracy",
    "topk_conjugate",
    "topk_fenchel_young_loss",
    "topk_fenchel_young_mixture",
    "topk_mag",
    "topk_mag_tree",
    "topk_mask",
    "topk_sum",
]


def __dir__() -> list[str]:
    """What users may use; other modules are how it is done."""
    return list(__all__)
