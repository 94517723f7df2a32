"""python -m experiments.cifar100_vit --config=configs/cifar100_vit.py --workdir=DIR; or --help"""

if __name__ == "__main__":
    # Only then: the processes that make batches import this file, too, and need little of it.
    from experiments.cifar100_vit import experiment
    from experiments.core import cli

    cli.main(experiment.RECIPE)
