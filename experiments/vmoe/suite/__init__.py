"""All runs of the experiment: `python -m experiments.vmoe.suite --out=DIR`."""
