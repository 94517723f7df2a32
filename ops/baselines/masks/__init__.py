"""Relaxed top-k masks of other authors, one file a family."""
