"""Methods that the paper's operators are compared with, one file each."""

from ops.baselines.entropic_ot import entropic_ot_topk_mask

__all__ = ["entropic_ot_topk_mask"]
