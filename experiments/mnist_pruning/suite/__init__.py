"""All runs of the experiment: `python -m experiments.mnist_pruning.suite --out=DIR`."""
