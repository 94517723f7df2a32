"""python -m experiments.cifar100_vit --config=configs/cifar100_vit.py --workdir=DIR; or --help"""

if __name__ == "__main__":
    # Only then: the processes that make batches import this file, too, and need little of it.
    from etils import epy

    from experiments.core import cli

    with epy.lazy_imports():  # --help does without it
        from experiments.cifar100_vit import experiment

    cli.main("cifar100_vit", lambda: experiment.RECIPE)
