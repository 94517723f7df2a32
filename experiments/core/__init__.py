"""Shared by all experiments: command line, data, training loop, checkpoints, metrics."""
