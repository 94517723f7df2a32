"""Relaxed, sparse and differentiable top-k operators in JAX."""

from ops.sharded import topk_mag_tree
from ops.topk import hard_topk_mag, hard_topk_mask, straight_through, topk_mag, topk_mask

__all__ = ["hard_topk_mag", "hard_topk_mask", "straight_through", "topk_mag", "topk_mag_tree", "topk_mask"]
