"""python -m experiments.vmoe_clusters --config=configs/vmoe_clusters.py --workdir=DIR"""

if __name__ == "__main__":
    from experiments.core import cli
    from experiments.vmoe_clusters.experiment import RECIPE

    cli.main(RECIPE)
