"""All runs of the experiment: `python -m experiments.cifar100_vit.suite --out=DIR`."""
