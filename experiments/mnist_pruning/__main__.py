"""python -m experiments.mnist_pruning --config=configs/mnist_pruning.py --workdir=DIR; or --help"""

if __name__ == "__main__":
    # Only then: the processes that make batches import this file, too, and need little of it.
    from experiments.core import cli
    from experiments.mnist_pruning import experiment

    cli.main(experiment.RECIPE)
