"""python -m experiments.vmoe --config=configs/vmoe.py --workdir=DIR; or --help"""

if __name__ == "__main__":
    # Only then: the processes that make batches import this file, too, and need little of it.
    from experiments.core import cli
    from experiments.vmoe import experiment

    cli.main(experiment.RECIPE)
