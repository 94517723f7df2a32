"""Compiles operators and training steps for accelerators that are not at hand, and says whether they fit."""
