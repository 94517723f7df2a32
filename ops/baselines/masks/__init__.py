"""Relaxed top-k masks of other authors."""
