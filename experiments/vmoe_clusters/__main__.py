"""python -m experiments.vmoe_clusters --config=configs/vmoe_clusters.py --workdir=DIR; or --help"""

if __name__ == "__main__":
    from experiments.core import cli
    from experiments.vmoe_clusters import experiment

    cli.main(experiment.RECIPE)
