"""python -m experiments.mnist_pruning --config=configs/mnist_pruning.py --workdir=DIR"""

if __name__ == "__main__":
    # Only then: the processes that make batches import this file, too, and need little of it.
    from experiments.core import cli
    from experiments.mnist_pruning.experiment import RECIPE

    cli.main(RECIPE)
