"""python -m experiments.cifar100_vit --config=configs/cifar100_vit.py --workdir=DIR"""

from experiments.cifar100_vit.experiment import RECIPE
from experiments.core import cli

if __name__ == "__main__":
    cli.main(RECIPE)
