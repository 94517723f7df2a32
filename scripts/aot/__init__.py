"""Compiles operators and training steps for accelerators that are not at hand, and counts what the programs hold."""
