"""Experiments: each package here adds a model, a loss and a config to the trainer in `core`."""
