"""python -m experiments.mnist_pruning --config=configs/mnist_pruning.py --workdir=DIR"""

from experiments.core import cli
from experiments.mnist_pruning.experiment import RECIPE

if __name__ == "__main__":
    cli.main(RECIPE)
