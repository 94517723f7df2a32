"""Relaxed top-k masks by others."""
