"""All runs of the task: `python -m experiments.vmoe_clusters.suite --out=DIR`."""
