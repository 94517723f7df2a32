"""python -m experiments.mnist_pruning --config=configs/mnist_pruning.py --workdir=DIR; or --help"""

if __name__ == "__main__":
    # Only then: the processes that make batches import this file, too, and need little of it.
    from etils import epy

    from experiments.core import cli

    with epy.lazy_imports():  # --help does without it
        from experiments.mnist_pruning import experiment

    cli.main("mnist_pruning", lambda: experiment.RECIPE)
